"""The worker of benchmarks/profiled_server.py: fairstep.worker with a stopwatch.

    profiled_worker.py FOLDER DESCRIPTOR

When it ends it leaves worker.json in the folder: a stretch for each Report, with the times of its parts.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fairstep import worker
from laps import Laps


def watch(laps: Laps) -> None:
    """Name the worker's parts."""
    worker.spin_shortly()  # as the worker does, before torch
    from fairstep.door import Report
    from fairstep.kernels.cpu.library import Library
    from fairstep.model import runner
    from fairstep.model.cpu_decoder import CpuDecoder
    from fairstep.model.decoder import Decoder
    from fairstep.model.runner import TorchRunner
    from fairstep.stepping.loop import StepLoop

    laps.around(worker.SocketDoor, "receive", "door")
    laps.around(StepLoop, "apply", "door")
    laps.around(StepLoop, "plan", "plan")
    laps.around(TorchRunner, "launch", "inputs")
    laps.around(CpuDecoder, "compute", "inputs")  # less the call that computes
    laps.around(Decoder, "hidden", "model")
    laps.around(Decoder, "logits", "head")
    laps.around(runner, "_draw", "sampling")
    laps.around(StepLoop, "commit", "commit")
    _watch_calls(laps, Library)
    laps.around(worker.SocketDoor, "send", "report")
    send = worker.SocketDoor.send

    def sent(self: worker.SocketDoor, message: object) -> None:
        send(self, message)
        if isinstance(message, Report):
            step = message.step
            laps.cut(decodes=step.decode_tokens if step else 0, prompt_tokens=step.prompt_tokens if step else 0)

    worker.SocketDoor.send = sent


def _watch_calls(laps: Laps, library: type) -> None:
    """The C++ step's call, logits included."""
    make = library._function

    def made(self: object, name: str, *types: object) -> object:
        call = make(self, name, *types)
        return laps.timed(call, "model") if name == "step" else call

    library._function = made


def serve() -> None:
    """As fairstep.worker does."""
    folder, descriptor = sys.argv[1:]
    laps = Laps("loop")
    watch(laps)
    sys.argv[1:] = [descriptor]
    try:
        worker.main()
    finally:
        Path(folder, "worker.json").write_text(json.dumps(laps.stretches), encoding="utf-8")


if __name__ == "__main__":
    serve()
