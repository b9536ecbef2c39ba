"""checks.py: what passes comes back as frozen values; what doesn't is refused in words that name the field."""

import math
from typing import Any

import pytest

from fairstep import checks
from fairstep.errors import InvalidParameter


@pytest.mark.parametrize("values", [{5: 1.5, 7: -2}, ((5, 1.5), (7, -2)), [[7, 3], [5, 1.5], [7, -2]]])
def test_biases_are_pairs_of_which_the_last_of_an_id_counts(values: Any) -> None:
    assert sorted(checks.biases("x", values, most=3, largest=100.0)) == [(5, 1.5), (7, -2.0)]


@pytest.mark.parametrize("values", [5, "ab", [1, 2], {"5": 1.0}, {5: "1"}, {5: None}, {None: 1.0}, {-1: 1}, {5: 101}])
def test_what_is_no_bias_is_refused(values: Any) -> None:
    with pytest.raises(InvalidParameter, match="x ") as caught:
        checks.biases("x", values, most=3, largest=100.0)
    assert caught.value.param == "x" and len(str(caught.value)) < 200


def test_more_than_the_most_are_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidParameter, match="at most 3 tokens, not 4"):
        checks.biases("x", dict.fromkeys(range(4), 0.0), most=3, largest=1.0)
    with pytest.raises(InvalidParameter, match="at most 2 strings, not 3"):
        checks.texts("x", ["a", "b", "c"], most=2, longest=5)


def test_ids_come_once_each_in_order() -> None:
    assert checks.ids("x", [5, 3, 5]) == (5, 3)
    assert checks.ids("x", None) == ()


def test_ids_that_were_checked_are_not_checked_again() -> None:
    checked = checks.ids("x", [5, 3])
    assert checks.ids("x", checked) is checked


@pytest.mark.parametrize("values", [5, "12", b"12", [True], [1.0], [-1], [2**31]])
def test_what_is_no_list_of_ids_is_refused(values: Any) -> None:
    with pytest.raises(InvalidParameter):
        checks.ids("x", values)


def test_one_text_may_stand_alone_and_none_is_none_at_all() -> None:
    assert checks.texts("x", "ab", most=1, longest=2) == ("ab",)
    assert checks.texts("x", None, most=1, longest=2) == ()


@pytest.mark.parametrize("value", [math.nan, -math.inf, 10**400, "1", True])
def test_a_number_is_finite(value: Any) -> None:
    with pytest.raises(InvalidParameter, match="finite"):
        checks.number("x", value, -1.0, 1.0)


def test_a_bound_may_be_left_out() -> None:
    checks.number("x", 1, 0.0, 1.0, above_low=True)
    with pytest.raises(InvalidParameter, match=r"\(0, 1\]"):
        checks.number("x", 0, 0.0, 1.0, above_low=True)
