"""Named points between accept and answer at which a front may be killed: `python front_points.py STATE LAST`.

Serves the fake model with its state in a folder, and kills itself with SIGKILL at the point LAST: the number of points
that it comes to until then (0: never), or a point's name. It tells its address, then each point as it is reached, on
lines of its stdout.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairstep.serving.event_log import EventLog
from fairstep.serving.once import Once
from fairstep.serving.responses import Responses
from fairstep.stores.appended_lines import AppendedLines
from fairstep.stores.batch_store import BatchStore
from fairstep.stores.database import Database
from fairstep.stores.file_store import FileStore
from fairstep.stores.response_store import ResponseStore
from fairstep.stores.sqlite_answers import SqliteAnswers
from fairstep.stores.state import State
from fakes_text import FakeTokenizer
from fakes_worker import fake_build
from live_server import LiveServer

# what a front does between accept and answer: killed before each of them and after it
DEEDS: tuple[tuple[type, str], ...] = (
    (Responses, "reply"),
    (Responses, "start"),
    (ResponseStore, "create"),
    (ResponseStore, "add"),
    (EventLog, "add"),
    (Once, "_begin"),
    (SqliteAnswers, "save"),
    (FileStore, "add"),
    (BatchStore, "save"),
    (AppendedLines, "append"),
    (Database, "change"),
)


class Points:
    """Counts the points as they are reached. last: the one at which the process ends."""

    def __init__(self, last: str) -> None:
        self._last = last
        self._reached = 0
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        with self._lock:
            self._reached += 1
            os.write(1, f"{name}\n".encode())
            if self._last in (str(self._reached), name):
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        for owner, deed in DEEDS:
            setattr(owner, deed, self._watched(f"{owner.__name__}.{deed}", getattr(owner, deed)))
        AppendedLines.append = self._torn(AppendedLines.append)  # type: ignore[method-assign]

    def _watched(self, name: str, deed: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(deed)
        def watched(*args: Any, **more: Any) -> Any:
            self.reach(f"before {name}")
            done = deed(*args, **more)
            self.reach(f"after {name}")
            return done

        return watched

    def _torn(self, append: Callable[[AppendedLines, bytes], None]) -> Callable[[AppendedLines, bytes], None]:
        """With a point at which half a line is written."""

        @wraps(append)
        def torn(own: AppendedLines, line: bytes) -> None:
            own._file.write(line[: len(line) // 2])
            self.reach("within AppendedLines.append")
            append(own, line)

        return torn


def main(folder: Path, last: str) -> None:
    state = State(folder)
    with LiveServer(
        "fake", app={"state": state}, in_process=True, tokenizer=FakeTokenizer(), build_worker=fake_build()
    ) as server:
        os.write(1, f"{server.url}\n".encode())
        Points(last).install()
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
