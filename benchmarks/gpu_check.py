"""All there is to check and measure the first time a GPU is at hand, in one command and a quarter of an hour.

Needs torch, triton, transformers and pytest there, nothing else; fairstep need not be installed. Each part is a process
of its own within its time, so that what fails leaves the others alone. The last line is JSON. The exit code is 0 if all
parts could be run, 1 if one failed, 2 without a GPU, when it only says what it would do. --smoke rehearses on a CPU.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NO_GPU = 2


@dataclass(frozen=True, slots=True)
class Part:
    """module: has `run(out, rehearse) -> figures`. seconds: that it may take."""

    name: str
    module: str
    seconds: int
    what: str


PARTS = (
    Part("driver", "gpu_driver", 60, "the driver, what it can load, and one kernel compiled and run"),
    Part("tests", "gpu_tests", 270, "all kernel tests, on the device instead of the interpreter"),
    Part("kernels", "gpu_kernels", 160, "decode, prefill and all else: GB/s, TFLOP/s, beside the peak and others"),
    Part("sweep", "gpu_sweep", 200, "launch figures of attention by timing, written as a table for this chip"),
    Part("model", "gpu_model", 210, "tokens/s of a random Llama 3.2 1B: graphs, overlap on and off; transformers"),
)


def main() -> int:
    args = _options()
    if args.run:
        return run_part(args.run, args.out, args.smoke)
    parts = [part for part in PARTS if not args.part or part.name in args.part]
    from report import emit

    if not args.smoke and not gpu_name():
        print("No GPU that torch can use is here. Nothing was run and nothing was timed. On one it would run:\n")
        print("\n".join(f"  {part.name:8} up to {part.seconds:3} s  {part.what}" for part in parts))
        emit("gpu_check", {"gpu": "", "would_run": {part.name: part.what for part in parts}})
        return NO_GPU
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        paths = _import_paths(Path(folder))
        told = {part.name: started(part, args.out, args.smoke, paths) for part in parts}
    failed = [name for name, row in told.items() if "failed" in row]
    emit("gpu_check", {"gpu": gpu_name(), "rehearsed": args.smoke, "parts": told, "failed": failed})
    return int(bool(failed))


def started(part: Part, out: Path, rehearse: bool, paths: list[Path]) -> dict[str, Any]:
    """A part's figures, or why there are none."""
    print(f"=== {part.name}: {part.what}", flush=True)
    command = [sys.executable, __file__, "--run", part.name, "--out", str(out), *(["--smoke"] if rehearse else [])]
    known = os.environ.get("PYTHONPATH", "")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, paths), *([known] if known else [])]),
        "TRITON_DEFAULT_FP_FUSION": os.environ.get("TRITON_DEFAULT_FP_FUSION", "1"),
    }
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
    try:
        text, _ = process.communicate(timeout=part.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        print(text)
        return {"failed": f"took more than {part.seconds} s", "seconds": part.seconds}
    *lines, last = text.splitlines() or [""]
    print("\n".join(lines), flush=True)
    try:
        told: dict[str, Any] = json.loads(last)
    except json.JSONDecodeError:
        told = {"failed": f"ended with exit code {process.returncode}: {last}"}
    return {**told, "seconds": round(time.monotonic() - began, 1)}


def run_part(name: str, out: Path, rehearse: bool) -> int:
    """In a part's own process: its figures are the last line."""
    [part] = [each for each in PARTS if each.name == name]
    try:
        told = import_module(part.module).run(out, rehearse)
    except Exception as error:
        import traceback

        traceback.print_exc()
        told = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(told))
    return int("failed" in told)


def gpu_name() -> str:
    """Of the first GPU; "" where there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def _import_paths(folder: Path) -> list[Path]:
    """Where fairstep is found if it isn't installed, and what stands in for packages that are missing."""
    paths = []
    if find_spec("fairstep") is None:
        package = folder / "fairstep"
        package.mkdir()
        for each in (*(ROOT / "engine").iterdir(), ROOT / "kernels"):
            (package / each.name).symlink_to(each)
        paths.append(folder)
    for name in ("msgspec", "gguf"):
        if find_spec(name) is None:
            (folder / "stand-ins").mkdir(exist_ok=True)
            [found] = (ROOT / "benchmarks" / "bare").glob(name)
            (folder / "stand-ins" / found.name).symlink_to(found)
    return [*paths, *folder.glob("stand-ins")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="this part alone")
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="folder for what it writes")
    parser.add_argument("--smoke", action="store_true", help="rehearse with tiny sizes, on a CPU too")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
