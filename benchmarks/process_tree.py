"""Memory and processor time of a process and all it started, from /proc. Linux only."""

import os
from collections.abc import Iterator
from pathlib import Path


def tree_pss(pid: int) -> int:
    """Bytes of proportional set size, summed: a page shared by two of them counts once."""
    return sum(map(_pss, tree(pid)))


def tree_cpu(pid: int) -> float:
    """Seconds that they have computed so far, over all cores."""
    return sum(map(_ticks, tree(pid))) / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> Iterator[int]:
    """The process and its descendants alive now."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):  # a child hangs on the thread that started it
        for child in _read(children).split():
            yield from tree(int(child))


def _pss(pid: int) -> int:
    for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _ticks(pid: int) -> int:
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()  # after the name, which may hold anything
    return int(fields[11]) + int(fields[12]) if fields else 0  # user, system


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # it has ended meanwhile
        return ""
