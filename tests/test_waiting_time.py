"""waiting_time.py: one pot of waiting, told in two parts."""

from fairstep.admission.waiting_time import IdleTime, Waited


def test_waiting_while_a_worker_is_idle_is_by_choice() -> None:
    idle = IdleTime()
    idle.set(True, 0)
    assert idle.waited(arrived=0, total_then=idle.total(0), now=10) == Waited(by_choice=10, for_worker=0)


def test_waiting_while_all_are_busy_is_for_a_worker() -> None:
    idle = IdleTime()
    assert idle.waited(arrived=1, total_then=idle.total(1), now=100) == Waited(by_choice=0, for_worker=99)


def test_both_parts_add_up_over_several_turns() -> None:
    idle = IdleTime()
    idle.set(True, 0)
    idle.set(False, 10)
    then = idle.total(95)  # F of the first document: it comes at 95, the worker is idle at 100, it leaves at 105
    idle.set(True, 100)
    idle.set(True, 102)  # told again
    waited = idle.waited(arrived=95, total_then=then, now=105)
    assert waited == Waited(by_choice=5, for_worker=5)
    assert waited.total == 10
