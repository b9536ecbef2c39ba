"""swings.py: U and R as the promise names them."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.swings import Swings

CHARGES = st.lists(st.tuples(st.integers(-50, 100), st.booleans()), max_size=40)


def test_overruns_count_with_the_admission_before_them() -> None:
    swings = Swings()
    for units, admitted in ((100, True), (30, False), (20, True), (10, False)):
        swings.charge(units, admitted=admitted)
    assert (swings.charged, swings.largest_charge, swings.largest_refund) == (160, 130, 0)


def test_refunds_in_a_row_are_one_fall() -> None:
    swings = Swings()
    for units, admitted in ((100, True), (-40, False), (10, False), (-60, False), (5, True)):
        swings.charge(units, admitted=admitted)
    assert (swings.charged, swings.largest_charge, swings.largest_refund) == (15, 100, 90)


@given(CHARGES)
def test_they_are_the_largest_of_all_stretches(charges: list[tuple[int, bool]]) -> None:
    swings = Swings()
    sums = [0]
    for units, admitted in charges:
        swings.charge(units, admitted=admitted)
        sums.append(sums[-1] + units)
    falls = [sums[i] - sums[j] for i in range(len(sums)) for j in range(i, len(sums))]
    # a rise: no admission but at its begin
    rises = [0]
    for begin in range(len(charges)):
        for end in range(begin, len(charges)):
            if end > begin and charges[end][1]:
                break
            rises.append(sums[end + 1] - sums[begin])
    assert swings.largest_refund == max(falls)
    assert swings.largest_charge == max(rises)
    assert swings.charged == sums[-1]
