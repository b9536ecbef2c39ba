"""Traces as CSV: a header line, then a request a line; lines that begin with # are remarks.

Columns: arrival_s, input_tokens, output_tokens; and, where there is such a thing, tenant (or client), max_tokens,
priority, shared_tokens (or reusable_prefix_tokens), deadline_s, ttft_deadline_s, cancel_s. Other columns are ignored.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from ..errors import ConfigError
from ..tenants import ANONYMOUS
from .processes import poisson
from .trace import Arrival, Trace

NEEDED = ("input_tokens", "output_tokens")
SAME = {"client": "tenant", "reusable_prefix_tokens": "shared_tokens"}


def read_trace(path: Path, *, rate: float | None = None, seed: int = 0, most: int | None = None) -> Trace:
    """The trace in a file, of its first `most` requests if that is given. The simulation goes on until all have ended.

    rate: Poisson arrivals, so many a second, instead of the file's. An answer of no tokens counts as one of one token.
    Raises ConfigError naming file, line and column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = ((number, line) for number, line in enumerate(file, 1) if line.strip() and line[0] != "#")
            arrivals = list(_arrivals(path, lines, rate, Random(seed), most))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"the trace {path} cannot be read: {problem}") from None
    if not arrivals:
        raise ConfigError(f"the trace {path} holds no requests")
    return Trace.of(path.stem, arrivals)


def _arrivals(
    path: Path, lines: Iterator[tuple[int, str]], rate: float | None, random: Random, most: int | None
) -> Iterator[Arrival]:
    header = next(lines, (0, ""))[1]
    names = [SAME.get(name.strip(), name.strip()) for name in next(csv.reader([header]), [])]
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ConfigError(f"the trace {path} has no column {', '.join(missing)}: its first line must name them")
    instants = poisson(rate, float("inf"), random) if rate else None
    for count, (number, line) in enumerate(lines):
        if count == most:
            return
        cells = dict(zip(names, next(csv.reader([line])), strict=False))
        row = _Row(f"{path}, line {number}", cells)
        yield row.arrival(next(instants) if instants else row.instant())


class _Row:
    """One line's cells, read with the place named in errors."""

    def __init__(self, where: str, cells: Mapping[str, str]) -> None:
        self._where = where
        self._cells = cells

    def instant(self) -> float:
        at = self._number("arrival_s")
        if at is None:
            raise ConfigError(f"{self._where}: no arrival_s; give a rate to draw arrivals")
        return at

    def arrival(self, at: float) -> Arrival:
        prompt = max(1, self._whole("input_tokens") or 0)
        return Arrival(
            at=at,
            tenant=self._cells.get("tenant") or ANONYMOUS,
            prompt_tokens=prompt,
            outputs=max(1, self._whole("output_tokens") or 0),
            max_tokens=self._whole("max_tokens") or None,
            priority=self._whole("priority") or 0,
            shared=min(self._whole("shared_tokens") or 0, prompt),
            deadline=self._number("deadline_s"),
            ttft_deadline=self._number("ttft_deadline_s"),
            cancel=self._number("cancel_s"),
        )

    def _number(self, column: str) -> float | None:
        cell = (self._cells.get(column) or "").strip()
        try:
            value = float(cell) if cell else None
        except ValueError:
            value = -1.0
        if value is not None and not 0 <= value < 1e12:
            raise ConfigError(f"{self._where}: {column} must be a number from 0, not {cell!r}")
        return value

    def _whole(self, column: str) -> int | None:
        value = self._number(column)
        return None if value is None else int(value)
