"""The names that fairstep imports of it."""


def dequantize(*_: object) -> None:
    raise NotImplementedError("gguf is not installed")


quantize = dequantize
