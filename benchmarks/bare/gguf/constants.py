"""The names that fairstep imports of it."""

from enum import IntEnum

GGML_QUANT_SIZES: dict[int, tuple[int, int]] = {}


class GGMLQuantizationType(IntEnum):
    F32 = 0
