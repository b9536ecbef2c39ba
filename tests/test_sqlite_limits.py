"""sqlite_limits.py: counts outlive their process, however that ends."""

import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairstep.admission.limit_store import Draw
from fairstep.errors import StoreFailed
from fairstep.stores.sqlite_limits import SqliteLimits, _checkpoint

# counts one by one, and tells each only when it is counted
COUNTING = """
import sys
from pathlib import Path
from fairstep.admission.limit_store import Draw
from fairstep.stores import sqlite_limits
from fairstep.stores.sqlite_limits import SqliteLimits

sqlite_limits.CHECKPOINT_EVERY = 3
store = SqliteLimits(Path(sys.argv[1]))
while True:
    assert store.take([Draw("a", "tokens", 600, 7, 10**9), Draw("a", "requests", 600, 1, 10**9)]) is None
    print("counted", flush=True)
"""


def draw(amount: int, month: int = 600) -> Draw:
    return Draw("a", "tokens", month, amount, 100)


def count_until_killed(path: Path, times: int) -> int:
    """Another process counts at least so many times and is killed while it does; how often it told so."""
    with subprocess.Popen([sys.executable, "-c", COUNTING, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for _ in range(times):
                assert process.stdout.readline() == b"counted\n"
        finally:
            process.kill()
        rest = process.stdout.read().count(b"counted\n")
    assert process.returncode == -signal.SIGKILL
    return times + rest


def test_a_killed_process_loses_no_count(tmp_path: Path) -> None:
    path = tmp_path / "counts.sqlite"
    told = 0
    for kill in range(1, 4):
        told += count_until_killed(path, 20)
        store = SqliteLimits(path)
        requests = store.count("a", "requests", 600)
        assert told <= requests <= told + kill  # each may have been killed between counting and telling
        assert store.count("a", "tokens", 600) == 7 * requests  # all of a request's counts, or none
        store.close()


def test_counts_are_there_after_a_restart(tmp_path: Path) -> None:
    first = SqliteLimits(tmp_path / "counts.sqlite")
    first.take([draw(60)])
    first.close()
    again = SqliteLimits(tmp_path / "counts.sqlite")
    assert again.count("a", "tokens", 600) == 60
    assert again.take([draw(41)]) == draw(41)
    again.close()


def test_two_processes_count_together(tmp_path: Path) -> None:
    one, other = (SqliteLimits(tmp_path / "counts.sqlite") for _ in range(2))
    assert one.take([draw(60)]) is None
    assert other.take([draw(60)]) == draw(60)
    assert other.take([draw(40)]) is None
    assert one.count("a", "tokens", 600) == 100
    one.close()
    other.close()


def test_nobody_counts_between_anothers_look_and_write(tmp_path: Path) -> None:
    stores = [SqliteLimits(tmp_path / "counts.sqlite") for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:  # one for each
        refused = sum(threads.map(lambda store: sum(store.take([draw(1)]) is not None for _ in range(75)), stores))
    assert refused == 50
    for store in stores:
        assert store.count("a", "tokens", 600) == 100
        store.close()


def test_old_months_can_be_forgotten(tmp_path: Path) -> None:
    store = SqliteLimits(tmp_path / "counts.sqlite")
    store.add([draw(1, month=587), draw(2, month=586)])
    store.forget(before=600)
    assert [store.count("a", "tokens", month) for month in (587, 586)] == [1, 0]
    store.close()


def test_a_file_that_cannot_be_opened_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="absent"):
        SqliteLimits(tmp_path / "absent" / "counts.sqlite")
    (tmp_path / "text").write_text("this is no database, whatever its name says" * 50)
    with pytest.raises(StoreFailed, match="text"):
        SqliteLimits(tmp_path / "text")


def test_a_file_that_another_holds_too_long_is_told_and_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairstep.stores.sqlite_limits.BUSY_SECONDS", 0.01)
    store = SqliteLimits(tmp_path / "counts.sqlite")
    holder = sqlite3.connect(tmp_path / "counts.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed, match="locked"):
        store.take([draw(1)])
    holder.execute("ROLLBACK")
    holder.close()
    assert store.take([draw(2)]) is None
    assert store.count("a", "tokens", 600) == 2
    store.close()


def test_the_log_is_taken_into_the_file_beside_the_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairstep.stores.sqlite_limits.CHECKPOINT_EVERY", 10)
    path = tmp_path / "counts.sqlite"
    store = SqliteLimits(path)
    for _ in range(300):
        assert store.take([Draw("a", "requests", 600, 1, 10**9)]) is None
        assert store._checkpoint is None or store._checkpoint.exception() is None  # waits for it
    assert path.stat().st_size > 0
    log = path.with_name(path.name + "-wal")
    assert log.stat().st_size < 300 * 4096, "the log was never begun anew"
    assert store.count("a", "requests", 600) == 300
    store.close()
    again = SqliteLimits(path)
    assert again.count("a", "requests", 600) == 300
    again.close()


def test_a_checkpoint_that_fails_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "counts.sqlite"
    store = SqliteLimits(path)
    store.take([draw(60)])
    _checkpoint(tmp_path / "absent" / "counts.sqlite")
    assert "stays long" in caplog.text
    assert store.count("a", "tokens", 600) == 60
    store.close()
