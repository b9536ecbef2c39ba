"""How loading is shown: a bar on a terminal, a line for each part elsewhere."""

import sys
from typing import TextIO

from tqdm import tqdm


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
