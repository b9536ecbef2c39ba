"""Stores on a full disk, in a locked file and under a jumping wall clock: all of what is asked of them, or nothing."""

from collections import Counter
from pathlib import Path

import pytest

from chaos.store_history import StoreHistory

SLICE, WHOLE = 20, 500


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("database", "sqlite_limits"):
        monkeypatch.setattr(f"fairstep.stores.{module}.BUSY_SECONDS", 0.001)


def play(seeds: range, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        (own := folder / str(seed)).mkdir()
        try:
            counts += StoreHistory(seed, own).run()
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
    return counts


def test_a_slice_of_the_histories_of_stores(tmp_path: Path) -> None:
    counts = play(range(SLICE), tmp_path)
    print(f"\n{SLICE} histories of stores: {dict(sorted(counts.items()))}")
    for what in ("fault: full", "fault: locked", "fault: clock", "kept", "duplicates dropped"):
        assert counts[what], f"no history has any: {what}"


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_five_hundred_histories_of_stores(tmp_path: Path) -> None:
    counts = play(range(WHOLE), tmp_path)
    print(f"\n{WHOLE} histories of stores: {dict(sorted(counts.items()))}")
