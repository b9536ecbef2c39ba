"""Seeded histories: every accepted request ends exactly once or is refused in words; nothing is lost, or said twice.

The counts are printed: `pytest tests/chaos -s`.
"""

from collections import Counter

import pytest

from chaos.history import History

SLICE = 30


def play(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts += History(seed).run()
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
    return counts


def test_a_slice_of_the_histories() -> None:
    counts = play(range(SLICE))
    print(f"\n{SLICE} histories: {dict(sorted(counts.items()))}")
    faults = ("fault: hang", "fault: doom", "deaths", "let go")
    for what in (*faults, "retried", "stale", "duplicates dropped", "request_failed_isolated", "length"):
        assert counts[what], f"no history has any: {what}"


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_thousand_histories() -> None:
    counts = play(range(1000))
    print(f"\n1000 histories: {dict(sorted(counts.items()))}")
