"""Clocks."""

import pytest

from fairstep.clock import ManualClock, MonotonicClock, wall_time


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(start=5.0)
    assert clock.now() == clock.now() == 5.0
    clock.jump(1.5)
    assert clock.now() == 6.5


def test_a_clock_cannot_go_back() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="cannot go back"):
        clock.jump(-1)
    assert clock.now() == 0.0


def test_the_machine_clock_never_goes_back() -> None:
    clock = MonotonicClock()
    instants = [clock.now() for _ in range(100)]
    assert instants == sorted(instants)


def test_wall_time_is_in_whole_seconds() -> None:
    assert isinstance(wall_time(), int)
    assert wall_time() > 1_600_000_000
