"""How loading and answering are shown: bars on a terminal, a line for each part elsewhere. Knows no model."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from tqdm import tqdm

REFRESH_SECONDS = 0.2


class LoadingDisplay:
    """Told `(what, fraction)` while a model loads. Writes to `out`, by default stderr."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._what = ""
        self._bar: tqdm[None] | None = None

    def __call__(self, what: str, fraction: float) -> None:
        if what != self._what:
            self._begin(what)
        if self._bar is not None:
            self._bar.update(fraction - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _begin(self, what: str) -> None:
        self.close()
        self._what = what
        if self._out.isatty():
            self._bar = tqdm(
                total=1.0,
                desc=what,
                bar_format="{desc}: {percentage:3.0f}% {bar}",
                file=self._out,
                leave=False,
                mininterval=0,
            )
        else:
            print(what, file=self._out, flush=True)


class AnswersDisplay:
    """How far `fairstep generate` is: a bar on a terminal, and a last line everywhere.

    out: by default stderr. total: lines in all, None where nobody knows. done, failed: lines that are there already,
    and those of them with an error.
    now: the clock, in seconds. resumable: a run that ends early can go on.
    """

    def __init__(
        self,
        total: int | None,
        done: int,
        failed: int,
        now: Callable[[], float],
        *,
        resumable: bool = True,
        out: TextIO | None = None,
    ) -> None:
        self.total = total
        self.done = done
        self.failed = failed
        self.tokens = 0
        self._out = out or sys.stderr
        self._now = now
        self._resumable = resumable
        self._began = self._shown = now()
        shown = self._out.isatty()
        self._bar = tqdm(total=total, initial=done, unit=" lines", file=self._out, leave=False, disable=not shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away and say what was done."""
        self._bar.close()
        of = "" if self.total is None else f" of {self.total}"
        failed = f", {self.failed} with an error" if self.failed else ""
        speed = f"{self.tokens} tokens in {self._seconds():.1f} s ({self._speed()})"
        again = "; the same command goes on from there" if error is not None and self._resumable else ""
        print(f"{self.done}{of} lines{failed}: {speed}{again}", file=self._out, flush=True)

    def add_tokens(self, count: int) -> None:
        self.tokens += count
        if self._now() - self._shown >= REFRESH_SECONDS:
            self._shown = self._now()
            self._bar.set_postfix_str(self._speed())

    def add_line(self, *, failed: bool) -> None:
        self.done += 1
        self.failed += failed
        self._bar.update()

    def _seconds(self) -> float:
        return self._now() - self._began

    def _speed(self) -> str:
        return f"{self.tokens / max(self._seconds(), 1e-3):.0f} tokens/s"
