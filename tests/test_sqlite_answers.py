"""sqlite_answers.py: an answer that was kept outlives its process, however that ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairstep.errors import StoreFailed
from fairstep.stores.answers import ROW_BYTES, Answer
from fairstep.stores.database import Database
from fairstep.stores.sqlite_answers import SCHEMA, SqliteAnswers

SAVING = """
import sys
from pathlib import Path
from fairstep.stores.answers import Answer
from fairstep.stores.database import Database
from fairstep.stores.sqlite_answers import SCHEMA, SqliteAnswers

store = SqliteAnswers(Database(Path(sys.argv[1]), SCHEMA))
number = 0
while True:
    store.save(b"%d" % number, "t", Answer(b"f", 200, "text/plain", b"x" * number), 1.0)
    print(number, flush=True)
    number += 1
"""


def test_a_killed_process_loses_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    with subprocess.Popen([sys.executable, "-c", SAVING, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for number in range(50):
                assert int(process.stdout.readline()) == number
        finally:
            process.kill()
        told = 50 + process.stdout.read().count(b"\n")
    assert process.returncode == -signal.SIGKILL
    database = Database(path, SCHEMA)
    store = SqliteAnswers(database)
    for number in range(told):
        kept = store.find(b"%d" % number, 2.0)
        assert kept is not None and len(kept.body) == number
    store.check()
    database.close()


def test_what_could_not_be_kept_is_told_and_counted_nowhere(tmp_path: Path) -> None:
    database = Database(tmp_path / "answers", SCHEMA)
    store = SqliteAnswers(database, 10 * ROW_BYTES)
    database.rows("PRAGMA max_page_count = 12")
    small, large = (Answer(b"f", 200, "text/plain", b"x" * size) for size in (10, 10**6))
    with pytest.raises(StoreFailed, match="full"):
        store.save(b"a", "t", large, 1.0)
    assert store.find(b"a", 1.0) is None
    store.save(b"a", "t", small, 1.0)
    assert store.find(b"a", 1.0) == small
    store.check()
    database.close()
