"""Sampling as its options are described: one row at a time, in float64 and plain loops. What tests compare with."""

import math
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from fairstep.door import Sampling, TokenLogprobs
from fairstep.model.row import Row
from fairstep.stepping.plan import NOT_FINITE

WORD = 2**64
GAMMA = 0x9E3779B97F4A7C15
LARGEST = float(np.finfo(np.float32).max)
NOTHING = -math.inf


def mixed(state: int) -> int:
    """SplitMix64's finaliser."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % WORD
    return state ^ (state >> 31)


@cache
def key(seed: int, position: int) -> int:
    return mixed((mixed((seed + GAMMA) % WORD) + (position + 1) * GAMMA) % WORD)


def gumbel(seed: int, position: int, token: int) -> float:
    raw = mixed((key(seed, position) + (token + 1) * GAMMA) % WORD) >> 12
    return -math.log(-math.log((raw + 0.5) * 2.0**-52))


def rounded(value: float) -> float:
    """To float32, where what is finite stays so."""
    return value if value == NOTHING else float(np.float32(min(max(value, -LARGEST), LARGEST)))


def without(values: list[float], banned: Callable[[int], bool]) -> list[float]:
    """What a mask leaves; all, where that would be nothing."""
    left = [NOTHING if banned(token) else value for token, value in enumerate(values)]
    return left if max(left) > NOTHING else values


def word_ends(words: Iterable[tuple[int, ...]], known: tuple[int, ...]) -> set[int]:
    return {word[-1] for word in words if word and (*known, word[-1])[-len(word) :] == word}


def shaped(logits: Iterable[float], row: Row) -> list[float]:
    """The logits that are drawn from."""
    s, values = row.sampling, [float(value) for value in logits]
    outputs = row.known[row.prompt_len :]
    inside = range(len(values))
    for token, added in s.bias:
        if token in inside:
            values[token] = rounded(values[token] + added)
    if s.allowed:
        values = without(values, lambda token: token not in s.allowed)
    ends = word_ends(s.bad_words, row.known)
    values = without(values, lambda token: token in ends)
    for token in set(row.known) if s.repetition != 1.0 else ():
        if token in inside:
            values[token] = rounded(values[token] / s.repetition if values[token] > 0 else values[token] * s.repetition)
    for token in set(outputs) if s.frequency or s.presence else ():
        values[token] = rounded(values[token] - s.frequency * outputs.count(token) - s.presence)
    if row.position < s.min_tokens:
        values = without(values, lambda token: token in s.stop_ids)
    return values


def kept(values: list[float], s: Sampling) -> list[int]:
    """The ids that pass the cuts, likeliest first."""
    scaled = np.array(values) / s.temperature
    order = np.lexsort((np.arange(len(scaled)), -scaled))
    if s.top_k > 0:
        order = order[: s.top_k]
    weights = np.exp(scaled[order] - scaled[order[0]])
    before = np.concatenate(([0.0], np.cumsum(weights)[:-1]))
    if s.top_p < 1.0:
        inside = before < s.top_p * (1 - 1e-6) * weights.sum()
        order = order[inside]
    if s.min_p > 0.0:
        order = order[scaled[order] - scaled[order[0]] >= math.log(s.min_p)]
    return [int(token) for token in order]


def token(logits: Iterable[float], row: Row) -> int:
    """What is drawn."""
    raw, s = [float(value) for value in logits], row.sampling
    if any(math.isnan(value) or value == math.inf for value in raw) or max(raw) == NOTHING:
        return NOT_FINITE
    values = shaped(raw, row)
    if s.temperature <= 1e-5:
        return values.index(max(values))
    scores = {
        token: values[token] / s.temperature + gumbel(s.seed, row.position, token) for token in sorted(kept(values, s))
    }
    return max(scores, key=scores.__getitem__)


def logprobs(logits: Iterable[float], token: int, count: int) -> TokenLogprobs:
    """The token's, then the likeliest ones', out of the raw logits."""
    values = np.array([float(value) for value in logits])
    mass = values.max() + math.log(np.exp(values - values.max()).sum())
    ids = (token, *sorted(range(len(values)), key=lambda other: (-values[other], other))[:count])
    told = tuple(max(float(values[other] - mass), -9999.0) for other in ids)
    return TokenLogprobs(ids, told, int((values >= values[token]).sum()))
