"""Small real vocabularies, trained in memory in milliseconds, and random strings of many scripts to try them on."""

import io
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import sentencepiece
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

LINES = [
    "the cat sat on the mat, and the other cat sat on the hat",
    "hello there, how are you today? where is 1 of the 234 ants",
    "ein Mädchen läuft über die Straße; été à la plage",
    "съешь ещё этих мягких булок",
    "吾輩は猫である。名前はまだ無い。",
    "한국어 문장도 조금",
    "🫠 emoji 👩‍👩‍👧 and 🇩🇪 flags",
]

# what strings are made of: single characters by range, and clusters that take several of them
RANGES = [
    *((0x20, 0x7E), (0xA1, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x621, 0x64A), (0x905, 0x939)),
    *((0xE01, 0xE3A), (0x1100, 0x11FF), (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF)),
    *((0x00, 0x1F), (0x7F, 0x9F), (0x300, 0x36F), (0x2000, 0x206F), (0xE000, 0xF8FF), (0xFFF0, 0xFFFC)),
    *((0x10300, 0x1034A), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF), (0xE0100, 0xE01EF), (0x10FFF0, 0x10FFFF)),
]
CLUSTERS = [
    *("👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵🇫🇷", "👍🏽", "❤️", "1️⃣", "e\u0301", "a\u0308\u0323", "क्षि", "ก็", "각",
      "🏴\U000e0067\U000e0062\U000e007f"),
    *("  ", " the", "the ", "\n\n", "\r\n", "\t", "\0", "\ufeff", "\u200b", "\u2028", "cat", "hello there", "ß",
      "ﬁ", "①", "½"),
]  # fmt: skip


def random_strings(count: int, seed: int) -> Iterator[str]:
    """Strings of up to 16 parts, without U+2581, which is SentencePiece's space, and without U+FFFD."""
    draw = random.Random(seed)
    for _ in range(count):
        yield "".join(_part(draw) for _ in range(draw.randint(0, 16)))


def _part(draw: random.Random) -> str:
    if draw.random() < 0.4:
        return draw.choice(CLUSTERS)
    return chr(draw.randint(*draw.choice(RANGES)))


def train(kind: str, **how: Any) -> bytes:
    """A serialized SentencePiece model with byte tokens: "bpe" or "unigram"."""
    model = io.BytesIO()
    settings = {"vocab_size": 420, "byte_fallback": True, "hard_vocab_limit": False, "minloglevel": 2, **how}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 5), model_writer=model, model_type=kind, **settings
    )
    return model.getvalue()


@cache
def exact(kind: str) -> bytes:
    """A model that keeps every text as it is, as Llama's and Mistral's do."""
    return train(kind, normalization_rule_name="identity", remove_extra_whitespaces=False)


@cache
def normalizing(kind: str) -> bytes:
    """A model with the trainer's own defaults: NFKC, control characters dropped, spaces squeezed."""
    return train(kind)


def byte_level() -> Backend:
    """Byte-level BPE with a BOS that it adds itself."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken("<bos>", special=True), AddedToken("<eos>", special=True)],
        show_progress=False,
    )
    backend.train_from_iterator(LINES, trainer)
    backend.post_processor = processors.TemplateProcessing(single=["<bos>", "$A"], special_tokens=[("<bos>", 0)])
    return backend
