"""averages.py: late values by name."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.averages import SCALE, Averages


def test_the_first_value_is_the_average_and_a_new_one_weighs_a_fifth_in_the_end() -> None:
    averages = Averages()
    averages.add("a", 100)
    assert averages.of("a") == 100 * SCALE
    for _ in range(20):
        averages.add("a", 100)
    averages.add("a", 200)
    assert averages.of("a") == 120 * SCALE


def test_an_unknown_name_has_the_average_of_all() -> None:
    averages = Averages()
    assert averages.of("b") == 0
    averages.add("a", 10)
    assert averages.of("b") == averages.of_all == 10 * SCALE


def test_the_name_that_was_longest_without_a_value_is_forgotten() -> None:
    averages = Averages(most_names=2)
    for name in ("a", "b", "a", "c"):
        averages.add(name, 8 if name == "a" else 4)
    averages.check()
    assert averages.of("a") == 8 * SCALE
    assert averages.of("b") == averages.of_all != 4 * SCALE


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_an_average_lies_among_its_values(values: list[int]) -> None:
    averages = Averages()
    for value in values:
        averages.add("a", value)
    assert min(values) * SCALE - 50 <= averages.of("a") <= max(values) * SCALE
