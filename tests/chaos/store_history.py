"""A seeded history of what a server keeps, while the disk is full, the file is locked, or the wall clock jumps.

The files are real SQLite. What a store has taken stays as it was told; what it refused, in words, has left no trace.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from fairstep.admission.limit_store import Draw
from fairstep.errors import StoreFailed
from fairstep.stores.answers import KEPT_SECONDS, Answer
from fairstep.stores.batch_store import Batch
from fairstep.stores.file_store import StoredFile
from fairstep.stores.response_store import StoredEvent, StoredResponse
from fairstep.stores.sqlite_answers import SqliteAnswers
from fairstep.stores.sqlite_limits import SqliteLimits
from fairstep.stores.state import DATABASE, State

MONTH, MOST = 24_000, 10**9
LARGE = 40_000  # bytes: more than a full file has left in its pages
JUMPS = (-7200.0, 7200.0, -KEPT_SECONDS / 2, KEPT_SECONDS)
FAULTS = ("none", "none", "none", "full", "locked")


@contextmanager
def full_disk(connection: sqlite3.Connection) -> Iterator[None]:
    """A file that cannot grow by a page."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (before,) = connection.execute("PRAGMA max_page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA max_page_count = {before}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection that holds the file."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.execute("ROLLBACK")
        holder.close()


class StoreHistory:
    """One history in a folder. `counts` tell what happened in it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.pick = Random(seed)
        self.counts: Counter[str] = Counter()
        self.unix = self.latest = 1.8e9  # now, and the latest that it was
        self._folder = folder
        self._state, self._limits = self._opened()
        self._answers: dict[bytes, tuple[Answer, float]] = {}
        self._responses: dict[str, int] = {}  # how many events each has
        self._batches: dict[str, Batch] = {}
        self._files: dict[str, bytes] = {}
        self._counted = 0

    def run(self, turns: int = 30) -> Counter[str]:
        for turn in range(turns):
            self._turn(turn)
        self._open_again()
        self._judge()
        self._close()
        return self.counts

    def _opened(self) -> tuple[State, SqliteLimits]:
        return State(self._folder / "state"), SqliteLimits(self._folder / "limits.sqlite")

    def _close(self) -> None:
        self._state.close()
        self._limits.close()

    def _open_again(self) -> None:
        self._close()
        self._state, self._limits = self._opened()
        self.counts["opened again"] += 1

    def _turn(self, turn: int) -> None:
        if self.pick.random() < 0.1:
            self.unix += self.pick.choice(JUMPS)
            self.latest = max(self.latest, self.unix)
            self.counts["fault: clock"] += 1
        if self.pick.random() < 0.05:
            self._open_again()
        fault = self.pick.choice(FAULTS)
        action = self.pick.choice((self._answer, self._respond, self._go_on, self._batch, self._file, self._limit))
        self.counts["accepted"] += 1
        with self._fault(fault):
            try:
                action(f"{turn}", self.pick.choice((10, LARGE)))
                self.counts["kept"] += 1
            except StoreFailed as refusal:
                assert fault != "none" and ("full" in str(refusal) or "locked" in str(refusal)), refusal
                self.counts["refused in words"] += 1
                self.counts[f"fault: {fault}"] += 1
        self._judge()

    @contextmanager
    def _fault(self, kind: str) -> Iterator[None]:
        state, limits = self._state._database, self._limits._database
        assert state is not None
        if kind == "full":
            with full_disk(state._connection), full_disk(limits):
                yield
        elif kind == "locked":
            with locked(self._folder / "state" / DATABASE), locked(self._folder / "limits.sqlite"):
                yield
        else:
            yield

    # --- what is asked of the stores; remembered once they have returned

    def _answer(self, name: str, size: int) -> None:
        scope = self.pick.choice([name.encode(), *self._answers])
        answer = Answer(b"print", 200, "text/plain", name.encode() * size)
        self._state.answers.save(scope, "t", answer, self.unix)
        before = self._answers.get(scope)
        if before is not None and self._state.answers.find(scope, self.unix) == before[0]:
            self.counts["duplicates dropped"] += 1
            return
        assert before is None or self.latest >= before[1] + KEPT_SECONDS, "an answer was lost before its day was over"
        self._answers[scope] = answer, self.unix

    def _respond(self, name: str, size: int) -> None:
        record = StoredResponse(name, "t", self.unix, True, None, b"{}", b"x" * size)
        self._state.responses.create(record, [StoredEvent(0, b"{}"), StoredEvent(1, b"{}")])
        self._responses[name] = 2

    def _go_on(self, name: str, size: int) -> None:
        if self._responses:
            name = self.pick.choice(list(self._responses))
            first = self._responses[name]
            events = [StoredEvent(first, b"{}", (1, 2)), StoredEvent(first + 1, b"x" * size)]
            assert self._state.responses.add(name, events)
            self._responses[name] = first + 2

    def _batch(self, name: str, size: int) -> None:
        known = self._batches.get(name := self.pick.choice([name, *self._batches]))
        batch = Batch(
            id=name,
            tenant="t",
            endpoint="/v1/completions",
            input="file",
            created=int(self.unix),
            expires=int(self.unix) + 3600,
            total=3,
            completed=known.completed + 1 if known else 0,
            metadata={"a": "b" * size},
        )
        self._state.batches.save(batch)
        self._batches[name] = batch

    def _file(self, name: str, size: int) -> None:
        assert self._state.files is not None
        source = self._state.files.incoming(name)
        source.write_bytes(name.encode() * size)
        self._state.files.add(StoredFile(name, "t", int(self.unix), "n" * size, "batch"), source)
        self._files[name] = name.encode() * size

    def _limit(self, name: str, size: int) -> None:
        draws = [Draw("t", counted, MONTH, size, MOST) for counted in ("tokens", "requests")]
        assert self._limits.take(draws) is None
        self._counted += size

    # --- what is there

    def _judge(self) -> None:
        """All that was kept is there, whole; nothing that was refused is."""
        state = self._state
        for scope, (answer, saved) in self._answers.items():
            found = state.answers.find(scope, self.unix)
            assert found in (answer, None), "another answer took its place"
            assert found or self.latest >= saved + KEPT_SECONDS, "an answer is lost before its day is over"
        assert {each.id for each in state.responses.unfinished()} == set(self._responses)
        for name, count in self._responses.items():
            assert [event.number for event in state.responses.events(name)] == list(range(count))
        assert {each.id: each for each in state.batches.of_tenant("t")} == self._batches
        assert state.files is not None
        assert {each.id for each in state.files.of_tenant("t")} == set(self._files)
        assert all(state.files.path(name).read_bytes() == content for name, content in self._files.items())
        for counted in ("tokens", "requests"):
            assert self._limits.count("t", counted, MONTH) == self._counted, "a count is half written"
        assert isinstance(state.answers, SqliteAnswers)
        state.answers.check()
        state.responses.check()
