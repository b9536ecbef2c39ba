"""How a cost grows with what it depends on: a straight line through what was measured, and in words what that shows.

Knows no engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Shape = Literal["flat", "linear", "neither"]
FLAT = 1.5  # at most so many times as dear at its dearest as at its cheapest
STRAIGHT = 0.97  # the least R^2 of a line


@dataclass(frozen=True, slots=True)
class Fit:
    """The line base + slope * x with the least squares of errors. ends: the last value as a multiple of the first.

    r_squared: which part of the values' variance it explains; 1 where they are all the same.
    """

    base: float
    slope: float
    r_squared: float
    ends: float

    @classmethod
    def of(cls, xs: Sequence[float], ys: Sequence[float]) -> "Fit":
        """Of at least two different xs."""
        mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((x - mean_x) ** 2 for x in xs)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
        base = mean_y - slope * mean_x
        variance = sum((y - mean_y) ** 2 for y in ys)
        errors = sum((y - base - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
        return cls(base, slope, 1.0 - errors / variance if variance else 1.0, ys[-1] / ys[0])


@dataclass(frozen=True, slots=True)
class Curve:
    """What something takes, in seconds, by what it depends on, which rises. expected: how it should grow."""

    name: str
    over: str
    points: Mapping[int, float]
    expected: Shape

    @property
    def fit(self) -> Fit:
        return Fit.of([*self.points], [*self.points.values()])

    @property
    def shape(self) -> Shape:
        """Flat where no value is much above another, else linear where a rising line goes through them."""
        if max(self.points.values()) <= FLAT * min(self.points.values()):
            return "flat"
        fit = self.fit
        return "linear" if fit.r_squared >= STRAIGHT and fit.slope > 0.0 else "neither"

    def told(self) -> str:
        """In words."""
        first, *_, last = self.points
        fit, unit = self.fit, 1e6 if max(self.points.values()) < 1e-3 else 1e3
        unit_name = "µs" if unit == 1e6 else "ms"
        grew = f"{first:,} to {last:,} {self.over}: {fit.ends:.2f} times the time"
        line = f"{unit * fit.base:.2f} {unit_name} + {unit * fit.slope:.3g} {unit_name} each, R² {fit.r_squared:.3f}"
        verdict = "as expected" if self.shape == self.expected else f"expected: {self.expected}"
        return f"{self.name}: {self.shape} ({verdict}); {grew}; {line}"

    def kept(self) -> dict[str, Any]:
        """For the row: microseconds."""
        fit = self.fit
        return {
            "over": self.over,
            "microseconds": {str(x): round(1e6 * y, 2) for x, y in self.points.items()},
            "base": round(1e6 * fit.base, 2),
            "slope": float(f"{1e6 * fit.slope:.4g}"),
            "r_squared": round(fit.r_squared, 4),
            "ends": round(fit.ends, 3),
            "shape": self.shape,
            "expected": self.expected,
        }
