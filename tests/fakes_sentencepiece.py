"""A tiny SentencePiece-like tokenizer as the tokenizers library builds it: byte tokens, a leading space."""

from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend

from fairstep.text.fast_codec import FastCodec
from fairstep.text.tokenizer import Tokenizer

WORDS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = ["\u2581", "l", "e", "a", "d", "i", "n", "g", "x", "é", "龜", "\u2581leading", "\u2581x", "\u2581\u2581"]
TOKENS = WORDS + BYTES + LETTERS
IDS = {token: i for i, token in enumerate(TOKENS)}


def backend() -> Backend:
    built = Backend(models.BPE(IDS, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    built.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    built.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    built.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in WORDS])
    return built


def tokenizer() -> Tokenizer:
    return Tokenizer(FastCodec(backend()), {"bos_token": "<s>", "eos_token": "</s>"}, None)


def byte_ids(data: bytes) -> list[int]:
    return [IDS[f"<0x{byte:02X}>"] for byte in data]
