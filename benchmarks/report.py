"""What every benchmark tells beside its figures: versions, hardware, commit. A table for people, one JSON line to keep.

Knows no engine.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("fairstep", "torch", "triton", "transformers", "tokenizers", "gguf", "uvicorn")


def emit(benchmark: str, figures: Mapping[str, Any]) -> None:
    """Print the row: the benchmark's last line."""
    print(json.dumps({"benchmark": benchmark, **figures, **surroundings()}))


def surroundings() -> dict[str, Any]:
    """Where and with what the figures were taken."""
    return {
        "commit": commit(),
        "hardware": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "memory_gib": memory_gib()},
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}},
    }


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they must be; the first one left, the others right."""
    lines = [[str(cell) for cell in row] for row in (heading, *rows)]
    wide = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    return "\n".join(
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(line, wide, strict=True)) for line in lines)
    )


def commit() -> str:
    """The checkout's commit, marked where files differ from it; "" outside a checkout."""
    found = _git("rev-parse", "--short=12", "HEAD")
    return f"{found}+changes" if found and _git("status", "--porcelain") else found


def cpu_model() -> str:
    """The processor's name as the kernel tells it."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def memory_gib() -> float:
    """Installed memory."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1)


def version_of(package: str) -> str:
    """An installed package's version, "" where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _git(*args: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
