"""backoff.py: restarts come later each time, until a worker gets something done; not for ever."""

from fairstep.backoff import FIRST, LONGEST, MOST_FAILED, Backoff


def test_each_wait_is_longer_up_to_a_bound_and_a_step_ends_that() -> None:
    backoff = Backoff()
    waits = [backoff.died(was_ready=True) for _ in range(20)]
    assert waits[:3] == [FIRST, 2 * FIRST, 4 * FIRST] and waits[-1] == LONGEST and not backoff.gives_up
    backoff.worked()
    assert backoff.died(was_ready=True) == FIRST


def test_starts_that_come_to_nothing_are_given_up_and_one_that_is_ready_counts_anew() -> None:
    backoff = Backoff()
    for _ in range(MOST_FAILED - 1):
        backoff.died(was_ready=False)
    backoff.loaded()
    backoff.died(was_ready=False)
    assert not backoff.gives_up
    for _ in range(MOST_FAILED - 1):
        backoff.died(was_ready=False)
    assert backoff.gives_up
