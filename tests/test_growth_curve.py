"""growth_curve.py of the benchmarks: the line through what was measured, and what is said of it."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
XS = (1, 2, 4, 8, 16)


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("growth_curve")


def curve(growth: ModuleType, *seconds: float, expected: str = "linear") -> Any:
    return growth.Curve("a step", "running", dict(zip(XS, seconds, strict=True)), expected)


def test_a_line_is_found(growth: ModuleType) -> None:
    fit = curve(growth, *(0.010 + 0.002 * x for x in XS)).fit
    assert (fit.base, fit.slope, fit.r_squared) == pytest.approx((0.010, 0.002, 1.0))
    assert fit.ends == pytest.approx(0.042 / 0.012)


def test_what_grows_along_a_line_is_linear(growth: ModuleType) -> None:
    found = curve(growth, 0.012, 0.0145, 0.018, 0.026, 0.042)
    assert found.shape == "linear"
    assert found.told().startswith("a step: linear (as expected); 1 to 16 running: 3.50 times the time; 10.")


def test_what_hardly_grows_is_flat(growth: ModuleType) -> None:
    assert curve(growth, 0.010, 0.012, 0.009, 0.011, 0.013).shape == "flat"
    assert curve(growth, *[0.010] * 5).shape == "flat"


def test_what_bends_or_falls_is_neither(growth: ModuleType) -> None:
    squares = curve(growth, *(0.001 * x * x for x in XS), expected="flat")
    assert squares.shape == "neither"
    assert "neither (expected: flat)" in squares.told()
    assert curve(growth, *(0.1 - 0.005 * x for x in XS)).shape == "neither"


def test_small_times_are_told_in_microseconds(growth: ModuleType) -> None:
    assert "R² 1.000" in curve(growth, *[5e-5] * 5).told()
    assert "50.00 µs" in curve(growth, *[5e-5] * 5).told()
