"""skipping_clock.py: time goes on by itself, and forward when told to."""

from fairstep.benchmarking.skipping_clock import SkippingClock
from fairstep.clock import ManualClock


def test_it_starts_at_0_goes_on_with_the_machine_and_skips_what_is_ahead() -> None:
    machine = ManualClock(start=500.0)
    clock = SkippingClock(machine)
    assert clock.now() == 0.0
    machine.jump(2.0)
    assert clock.now() == 2.0
    clock.reach(10.0)
    assert clock.now() == 10.0
    machine.jump(1.0)
    assert clock.now() == 11.0


def test_an_instant_that_has_passed_changes_nothing() -> None:
    machine = ManualClock()
    clock = SkippingClock(machine)
    machine.jump(3.0)
    clock.reach(1.0)
    assert clock.now() == 3.0
