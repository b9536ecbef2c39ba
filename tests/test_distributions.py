"""Draws follow the law that temperature, cuts, bias and penalties describe: chi-square tests with fixed seeds."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fairstep.door import Sampling
from fairstep.model.row import Row
from fairstep.model.sampler import sample

DRAWS = 12_000
LAW = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]
ODDS = 3.719  # standard normal: 1 in 10,000 lies above

LAWS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "temperature 1": ({}, LAW),
    "temperature 2": ({"temperature": 2.0}, [math.sqrt(p) for p in LAW]),
    "temperature 1/2": ({"temperature": 0.5}, [p**2 for p in LAW]),
    "top_k": ({"top_k": 3}, [*LAW[:3], 0, 0, 0]),
    "top_k 1": ({"top_k": 1}, [1, 0, 0, 0, 0, 0]),
    "top_p keeps the token that reaches it": ({"top_p": 0.7}, [*LAW[:3], 0, 0, 0]),
    "top_p met exactly": ({"top_p": 0.65}, [*LAW[:2], 0, 0, 0, 0]),
    "top_p after temperature": ({"temperature": 0.5, "top_p": 0.7}, [*(p**2 for p in LAW[:2]), 0, 0, 0, 0]),
    "min_p": ({"min_p": 0.3}, [*LAW[:3], 0, 0, 0]),
    "min_p after temperature": ({"temperature": 2.0, "min_p": 0.45}, [*(math.sqrt(p) for p in LAW[:4]), 0, 0]),
    "top_p of what top_k left": ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0, 0, 0]),
    "bias": ({"bias": ((5, math.log(10)), (0, math.log(0.5)))}, [0.2, 0.25, 0.15, 0.1, 0.06, 0.4]),
    "allowed": ({"allowed": (1, 4, 5)}, [0, 0.25, 0, 0, 0.06, 0.04]),
    "bad word": ({"bad_words": ((0,),)}, [0, *LAW[1:]]),
    "presence": ({"presence": math.log(2)}, [0.4, 0.125, 0.15, 0.05, 0.06, 0.04]),
    "frequency": ({"frequency": math.log(2)}, [0.4, 0.0625, 0.15, 0.05, 0.06, 0.04]),
    "repetition": ({"repetition": 2.0}, [0.16, 0.25**2, 0.15, 0.01, 0.06, 0.04]),
}
KNOWN = (0, 1, 3, 1)  # one prompt token, three outputs


def critical(degrees: int) -> float:
    """Chi-square above this is 1 in 10,000 (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + ODDS * math.sqrt(spread)) ** 3)


def rows(count: int, spread: str, **options: Any) -> list[Row]:
    """Rows whose noise differs by seed, by position or by both."""
    seeds = {"seeds": lambda n: n, "positions": lambda n: 7, "both": lambda n: n // 50}[spread]
    positions = {"seeds": lambda n: 3, "positions": lambda n: n, "both": lambda n: n % 50}[spread]
    made = {"temperature": 1.0, **options}
    return [Row(Sampling(seed=seeds(n), **made), positions(n), KNOWN, 1) for n in range(count)]


def drawn(law: Sequence[float], spread: str, **options: Any) -> Counter[int]:
    table = torch.tensor([[math.log(p) for p in law]]).expand(DRAWS, -1)
    return Counter(sample(table, rows(DRAWS, spread, **options)))


def chi_square(seen: Counter[int], law: Sequence[float]) -> tuple[float, int]:
    """The statistic and its degrees of freedom; infinite where something came that cannot."""
    total = sum(law)
    expected = [DRAWS * p / total for p in law]
    if any(seen[token] for token, many in enumerate(expected) if many == 0):
        return math.inf, 1
    parts = [(seen[token] - many) ** 2 / many for token, many in enumerate(expected) if many]
    return sum(parts), max(1, len(parts) - 1)


def follows(seen: Counter[int], law: Sequence[float]) -> bool:
    found, degrees = chi_square(seen, law)
    return found < critical(degrees)


def test_the_critical_values_are_those_of_the_tables() -> None:
    assert [critical(degrees) for degrees in (5, 10, 100)] == pytest.approx([25.74, 35.56, 161.3], rel=0.03)


@pytest.mark.parametrize("spread", ["seeds", "positions", "both"])
@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_law(name: str, spread: str) -> None:
    options, law = LAWS[name]
    assert follows(drawn(LAW, spread, **options), law)


@pytest.mark.parametrize("name", [name for name in LAWS if name != "temperature 1"])
def test_draws_without_the_option_do_not(name: str) -> None:
    assert not follows(drawn(LAW, "both"), LAWS[name][1])


@pytest.mark.parametrize(
    ("options", "nearly"),
    [
        ({"temperature": 0.9}, {"temperature": 1.0}),
        ({"top_k": 20}, {"top_k": 19}),
        ({"top_p": 0.9}, {"top_p": 0.89}),
        ({"min_p": 0.1}, {"min_p": 0.105}),
    ],
)
def test_small_differences_are_seen_over_a_longer_vocabulary(options: dict[str, Any], nearly: dict[str, Any]) -> None:
    """120 tokens: more than the likeliest that a whole row looks at first."""
    law = [math.exp(-token / 30) for token in range(120)]
    assert follows(drawn(law, "both", **options), cut(law, **options))
    assert not follows(drawn(law, "both", **nearly), cut(law, **options))


def cut(
    law: list[float], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    """The law that falls with the id, after the cuts."""
    warm = [p ** (1 / temperature) for p in law]
    warm = [p if not top_k or token < top_k else 0 for token, p in enumerate(warm)]
    total = sum(warm)
    warm = [p if sum(warm[:token]) < top_p * total else 0 for token, p in enumerate(warm)]
    return [p if p >= min_p * warm[0] else 0 for p in warm]
