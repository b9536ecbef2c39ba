"""batch_run.py: over any crashes and failures each line has one result, and a batch one end."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from fairstep.errors import EngineDead, StoreFailed
from fairstep.meters.durable import DurableMeter
from fairstep.serving.batch_lines import Line
from fairstep.serving.batch_run import BatchRun, LineReply, Workshop
from fairstep.serving.limits import Limits
from fairstep.stores.batch_store import ENDS, Batch, BatchStore
from fairstep.stores.file_store import StoredFile
from fairstep.stores.state import State
from test_response_run import Inline

LINES = 30


class Shaky(BatchStore):
    """Fails while it is told to."""

    fails = False

    def save(self, batch: Batch) -> None:
        if self.fails:
            raise StoreFailed("disk full")
        super().save(batch)


class Shop:
    """One batch through crashes. A line is answered when `let` through, refused or failed as chance has it."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.random, self.now = random, 1000.0
        self.state = State(folder)
        assert self.state.files is not None and self.state._database is not None
        self.files = self.state.files
        self.store = Shaky(self.state._database)
        self.workshop = Workshop(
            batches=self.store,
            files=self.files,
            aside=Inline(),
            limits=Limits(),
            unix=lambda: self.now,
            at_once=lambda: 4,
            meter=DurableMeter(),
        )
        body = {"method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}
        lines = [json.dumps({"custom_id": str(number), **body}) for number in range(LINES)]
        self.files.incoming("x").write_text("\n".join(lines), encoding="utf-8")
        self.files.add(StoredFile("file-in", "t", 1000, "in", "batch"), self.files.incoming("x"))
        batch = Batch(
            id="b", tenant="t", endpoint="/v1/completions", input="file-in", created=1000, expires=2000, total=LINES
        )
        self.store.save(batch)
        self.answered: Counter[str] = Counter()
        self.dead = self.refuses = False
        self.gate = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        [batch] = self.store.unfinished()
        self.run = BatchRun(self.workshop, batch, self.answer)
        self.task = asyncio.create_task(self.run.work())

    async def answer(self, line: Line, seconds: float, gone: asyncio.Event) -> LineReply | None:
        assert 0 < seconds <= 1000
        for _ in range(self.random.randint(0, 3)):
            await asyncio.sleep(0)
        if gone.is_set():
            return None
        if self.dead:
            raise EngineDead("the worker was killed")
        if self.refuses:
            return LineReply(429, b"{}", "r", retry_after=1.0)
        self.answered[line.custom_id] += 1
        return LineReply(400 if line.custom_id.endswith("7") else 200, b'{"a":1}', "r")

    async def crash(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.store.fails = self.dead = self.refuses = False
        if self.store.unfinished():
            self.begin()

    async def turn(self) -> None:
        match self.random.choice(("loop",) * 8 + ("crash", "fail", "well", "die", "refuse", "cancel", "later")):
            case "loop":
                for _ in range(self.random.randint(1, 8)):
                    await asyncio.sleep(0)
            case "crash":
                await self.crash()
            case "fail":
                self.store.fails = True
            case "well":
                self.store.fails = self.refuses = False
            case "die":
                self.dead = True
            case "refuse":
                self.refuses = True
            case "later" if self.random.random() < 0.1:
                self.now = 2000.0
            case "cancel" if self.random.random() < 0.1 and not self.store.fails:
                await self.run.cancel()

    async def finish(self) -> None:
        if self.store.unfinished():
            await self.crash()
        await self.task
        self.check()

    def check(self) -> None:
        batch = self.store.find("b", "t")
        assert batch is not None and batch.status in ENDS and batch.status != "failed"
        results = [json.loads(line) for file_id in (batch.output, batch.errors) for line in self.lines(file_id)]
        ids = Counter(result["custom_id"] for result in results)
        assert set(ids.values()) <= {1}, "a line has two results"
        if batch.status != "cancelled":
            assert set(ids) == set(map(str, range(LINES)))
        assert batch.completed == len(self.lines(batch.output)) and batch.failed == len(self.lines(batch.errors))
        late = [each for each in results if each["error"]]
        assert bool(late) == (batch.status == "expired") or batch.status == "cancelled"
        assert all(each["error"]["code"] == "batch_expired" and each["response"] is None for each in late)
        assert all(each["response"]["body"] == {"a": 1} for each in results if not each["error"])
        assert set(self.answered.values()) <= {1, 2, 3, 4, 5, 6, 7, 8, 9}  # computed again after a crash, told once

    def lines(self, file_id: str | None) -> list[bytes]:
        return [] if file_id is None else self.files.path(file_id).read_bytes().splitlines()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairstep.serving.batch_run.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("fairstep.serving.batch_run.LONGEST_PAUSE", 0.0)


@pytest.mark.parametrize("seed", range(60))
def test_each_line_has_one_result_whatever_happens(seed: int, tmp_path: Path) -> None:
    async def play() -> None:
        async with asyncio.timeout(60):
            shop = Shop(tmp_path, Random(seed))
            for _ in range(Random(seed).randint(5, 80)):
                await shop.turn()
            await shop.finish()
            shop.state.close()

    asyncio.run(play())
