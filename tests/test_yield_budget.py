"""yield_budget.py: a yield for so many admissions, some saved up."""

from fairstep.fairness.yield_budget import YieldBudget


def test_it_starts_full_and_is_filled_by_admissions() -> None:
    budget = YieldBudget(each=3, most=2)
    for _ in range(2):
        assert budget.can_spend()
        budget.spend()
    assert not budget.can_spend()
    budget.admitted()
    budget.admitted()
    assert not budget.can_spend()
    budget.admitted()
    assert budget.can_spend()


def test_no_more_is_saved_than_the_most() -> None:
    budget = YieldBudget(each=1, most=2)
    for _ in range(10):
        budget.admitted()
    budget.spend()
    budget.spend()
    assert not budget.can_spend()
