"""retry_budget.py: a retry for every ten completions, never more than it holds."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.retry_budget import RetryBudget


def test_it_starts_full_and_ten_completions_bring_one() -> None:
    budget = RetryBudget(2)
    budget.spend()
    budget.spend()
    assert not budget.can_spend()
    for _ in range(9):
        budget.complete()
    assert not budget.can_spend()
    budget.complete()
    assert budget.left == 1


def test_more_seats_come_full_and_fewer_change_nothing() -> None:
    budget = RetryBudget(2)
    budget.spend()
    budget.grow(5)
    assert budget.left == 4
    budget.grow(1)
    assert budget.left == 4


@given(st.integers(0, 9), st.lists(st.sampled_from(["spend", "complete", "grow"])))
def test_it_keeps_its_bounds(most: int, acts: list[str]) -> None:
    budget = RetryBudget(most)
    for act in acts:
        if act == "spend" and budget.can_spend():
            budget.spend()
        elif act == "complete":
            budget.complete()
        elif act == "grow":
            budget.grow(most + 1)
        budget.check()
