"""What sampling kernels are told of a seat: a record of int64 words, float64 as their bits, shared with the host."""

from typing import NamedTuple

import numpy as np
import triton
import triton.language as tl


class Record(NamedTuple):
    """How a seat's tokens are drawn.

    temperature: 0 is greedy. top_k: 0 is off, else below the vocabulary's size. top_p: the share of the mass that shuts
    out what comes after it, infinite where off. min_p: a logarithm, -inf where off. seed: as int64.
    repetition, frequency, presence: 1, 0 and 0 are off. min_tokens: stop ids are masked at positions below it.
    marks, bias: rows of those tables, -1 none. words: how many bad words of several ids. prompt_len: how many tokens
    were known before position 0.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = float("inf")
    min_p: float = float("-inf")
    seed: int = 0
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    min_tokens: int = 0
    marks: int = -1
    bias: int = -1
    words: int = 0
    prompt_len: int = 0

    def packed(self) -> list[int]:
        """FIELDS int64 words."""
        return [_bits(value) if isinstance(value, float) else value for value in self]


def _bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


FIELDS: tl.constexpr = tl.constexpr(len(Record._fields))
TEMPERATURE: tl.constexpr = tl.constexpr(Record._fields.index("temperature"))
TOP_K: tl.constexpr = tl.constexpr(Record._fields.index("top_k"))
TOP_P: tl.constexpr = tl.constexpr(Record._fields.index("top_p"))
MIN_P: tl.constexpr = tl.constexpr(Record._fields.index("min_p"))
SEED: tl.constexpr = tl.constexpr(Record._fields.index("seed"))
REPETITION: tl.constexpr = tl.constexpr(Record._fields.index("repetition"))
FREQUENCY: tl.constexpr = tl.constexpr(Record._fields.index("frequency"))
PRESENCE: tl.constexpr = tl.constexpr(Record._fields.index("presence"))
MIN_TOKENS: tl.constexpr = tl.constexpr(Record._fields.index("min_tokens"))
MARKS: tl.constexpr = tl.constexpr(Record._fields.index("marks"))
BIAS: tl.constexpr = tl.constexpr(Record._fields.index("bias"))
WORDS: tl.constexpr = tl.constexpr(Record._fields.index("words"))
PROMPT_LEN: tl.constexpr = tl.constexpr(Record._fields.index("prompt_len"))


@triton.jit
def integer(records, seat, FIELD: tl.constexpr):
    """int64 scalar."""
    return tl.load(records + seat.to(tl.int64) * FIELDS + FIELD)


@triton.jit
def number(records, seat, FIELD: tl.constexpr):
    """float64 scalar."""
    return integer(records, seat, FIELD).to(tl.float64, bitcast=True)
