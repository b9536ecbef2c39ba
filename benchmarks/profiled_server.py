"""`fairstep serve` with a stopwatch in both of its processes, for benchmarks/step_profile.py.

    profiled_server.py FOLDER serve MODEL ...    the front; its worker is `profiled_worker.py FOLDER DESCRIPTOR`

When it ends it leaves front.json in the folder: a stretch for each Report of the worker, with the times of its parts.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from laps import Laps


def watch(laps: Laps) -> None:
    """Name the front's parts."""
    from fairstep import async_engine, links
    from fairstep.async_engine import AsyncEngine
    from fairstep.door import FrameReader
    from fairstep.front import Front
    from fairstep.serving.sse import EventStream
    from fairstep.serving.writer import Writer
    from fairstep.streams import Stream
    from fairstep.text.stream import TextStream

    laps.around(FrameReader, "feed", "door")
    laps.around(links, "frame", "door")
    laps.around(Front, "receive", "books")
    laps.around(Front, "expire", "orders")
    laps.around(Front, "orders", "orders")
    laps.around(TextStream, "push", "detokenise")
    laps.around(AsyncEngine, "_deliver", "streams")
    laps.around(Stream, "take", "streams")
    laps.around(Writer, "events", "events")
    laps.around_async(EventStream, "send", "events")
    _cut_by_report(laps, Front)
    async_engine.ProcessLink = _profiled(links.ProcessLink)


def _cut_by_report(laps: Laps, front: type) -> None:
    """A stretch goes from one Report to the next, and has what the first of them brought."""
    from fairstep.door import Report

    receive = front.receive
    label = {"decodes": 0, "prompt_tokens": 0}

    def cut(self: object, *args: object) -> object:
        [step] = [each.step for each in args if isinstance(each, Report)]
        laps.cut(**label)
        label.update(decodes=step.decode_tokens if step else 0, prompt_tokens=step.prompt_tokens if step else 0)
        return receive(self, *args)

    front.receive = cut


def _profiled(link: type) -> type:
    """Starts a worker with a stopwatch."""
    program = str(Path(__file__).with_name("profiled_worker.py")), sys.argv[1]
    return type("ProfiledLink", (link,), {"program": program})


def serve() -> None:
    """As the command line of fairstep does."""
    from fairstep.serving.cli import main as command

    laps = Laps("event loop")
    watch(laps)
    try:
        command(sys.argv[2:])
    finally:
        Path(sys.argv[1], "front.json").write_text(json.dumps(laps.stretches), encoding="utf-8")


if __name__ == "__main__":
    serve()
