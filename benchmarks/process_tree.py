"""Memory of a process and all it started, from /proc. Linux only."""

from collections.abc import Iterator
from pathlib import Path


def tree_pss(pid: int) -> int:
    """Bytes of proportional set size, summed: a page shared by two of them counts once."""
    return sum(map(_pss, tree(pid)))


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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # it has ended meanwhile
        return ""
