"""`python -m fairstep.kernels.report`: what the compiler makes of each kernel for chips that need not be there.

With --write the figures are kept, a line a kernel and chip; with --kept they are compared with such a file.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from .triton.ahead import compiled, launches_of
from .triton.case import Case
from .triton.cases import all_cases
from .triton.chips import CHIPS
from .triton.figures import Figures, figures_of

COLUMNS = ("registers", "spilled", "shared", "tiles", "pending", "matrix", "16-byte loads")


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of a case, on one chip."""

    case: str
    kernel: str
    chip: str
    figures: Figures

    @property
    def key(self) -> tuple[str, str, str]:
        return self.case, self.kernel, self.chip

    def line(self) -> str:
        """As it is kept."""
        return json.dumps({"case": self.case, "kernel": self.kernel, "chip": self.chip, **asdict(self.figures)})


def read(path: Path) -> dict[tuple[str, str, str], Row]:
    """The rows of a file that was kept."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        key = {name: told.pop(name) for name in ("case", "kernel", "chip")}
        rows.append(Row(**key, figures=Figures(**told)))
    return {row.key: row for row in rows}


def measure(case_name: str, chip_name: str) -> list[Row]:
    """Compile what a case launches for a chip, each kernel once. Raises what the compiler raises."""
    chip = CHIPS[chip_name]
    case = all_cases()[case_name]
    different = {(kernel := compiled(launch, chip)).hash: kernel for launch in launches_of(partial(case.call, chip))}
    rows: list[Row] = []
    seen: Counter[str] = Counter()
    for kernel in different.values():
        name = kernel.metadata.name.lstrip("_")
        seen[name] += 1
        rows.append(Row(case_name, f"{name} {seen[name]}" if seen[name] > 1 else name, chip_name, figures_of(kernel)))
    return rows


@contextmanager
def measuring(pairs: Iterable[tuple[str, str]], processes: int) -> Iterator[dict[tuple[str, str], Future[list[Row]]]]:
    """measure() of each (case, chip), begun in their order."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        try:
            yield {pair: pool.submit(measure, *pair) for pair in pairs}
        finally:
            pool.shutdown(cancel_futures=True)


def faults(row: Row, case: Case) -> list[str]:
    """What may not be, whatever was kept, in words."""
    told, chip = row.figures, CHIPS[row.chip]
    least = case.tiles.get(row.kernel, 0)
    found = []
    if told.spilled:
        found.append(f"spills {told.spilled} bytes")
    if told.shared > chip.shared:
        found.append(f"takes {told.shared} bytes of shared memory, and {chip.name} has {chip.shared}")
    if told.tiles < least:
        found.append(f"holds {told.tiles} tiles, not {least}")
    elif least > 1 and chip.nvidia and not told.pending:
        found.append("waits for every copy before it computes")
    return found


def worse(kept: Figures, now: Figures) -> list[str]:
    """What got worse, in words."""
    found = [
        f"{name} {before} -> {after}"
        for name in ("registers", "spilled", "shared")
        if (after := getattr(now, name)) > (before := getattr(kept, name))
    ]
    found += [
        f"{name} {before} -> {after}"
        for name in ("tiles", "pending")
        if (after := getattr(now, name)) < (before := getattr(kept, name))
    ]
    if now.matrix != kept.matrix:
        found.append(f"matrix {kept.matrix or 'none'} -> {now.matrix or 'none'}")
    if now.wide * kept.loads < kept.wide * now.loads:
        found.append(f"16-byte loads {kept.wide}/{kept.loads} -> {now.wide}/{now.loads}")
    return found


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Lines for people."""
    rows = list(rows)
    names = [f"{row.case}: {row.kernel}" for row in rows]
    width = max(map(len, names), default=0)
    yield f"{'':{width}}  {'chip':6}  " + "  ".join(COLUMNS)
    for name, row in zip(names, rows, strict=True):
        told = row.figures
        numbers = (told.registers, told.spilled, told.shared, told.tiles, told.pending)
        cells = (*numbers, told.matrix or "-", f"{told.wide}/{told.loads}")
        line = "  ".join(f"{cell:>{len(column)}}" for cell, column in zip(cells, COLUMNS, strict=True))
        yield f"{name:{width}}  {row.chip:6}  {line}"


def left_out(cases: Mapping[str, Case], chips: Iterable[str]) -> Iterator[str]:
    for case in cases.values():
        for chip in chips:
            if chip in case.left_out:
                yield f"{case.name}: not for {chip}: {case.left_out[chip]}"


def main() -> int:
    """The exit code is 1 if something spills, doesn't fit, got worse or wouldn't compile."""
    args = _options()
    cases = {name: case for name, case in all_cases().items() if args.only in name}
    chips = args.chip or list(CHIPS)
    pairs = [(case.name, chip) for case in cases.values() for chip in chips if chip not in case.left_out]
    rows: list[Row] = []
    complaints: list[str] = []
    with measuring(pairs, args.processes) as results:
        for (case, chip), result in results.items():
            try:
                rows += result.result()
            except Exception as error:
                complaints.append(f"{case} on {chip}: {type(error).__name__}: {error}")
    print("\n".join([*table(rows), *left_out(cases, chips)]))
    kept = read(args.kept) if args.kept else {}
    for row in rows:
        found = faults(row, cases[row.case])
        if row.key in kept:
            found += worse(kept[row.key].figures, row.figures)
        if found:
            complaints.append(f"{row.case}: {row.kernel} on {row.chip}: {', '.join(found)}")
    if args.write:
        args.write.write_text("".join(f"{row.line()}\n" for row in rows), encoding="utf-8")
    if complaints:
        print("\n".join(complaints), file=sys.stderr)
    return int(bool(complaints))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fairstep.kernels.report", description=(__doc__ or "").strip())
    parser.add_argument("--chip", action="append", choices=list(CHIPS), help="this chip alone; may be said again")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the figures")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="compare with figures that were kept")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    if os.environ.get("TRITON_INTERPRET", "0") != "0":
        parser.error("TRITON_INTERPRET is set, and nothing is compiled under it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
