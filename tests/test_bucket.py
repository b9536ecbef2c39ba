"""bucket.py: evenly filled, with debt."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.bucket import Bucket


def test_a_full_bucket_gives_its_amount_at_once_and_a_sixtieth_a_second_after() -> None:
    bucket = Bucket(60, at=0.0)
    assert bucket.wait(60, 0.0) == 0.0
    bucket.take(60, 0.0)
    assert bucket.wait(1, 0.0) == 1.0
    assert bucket.wait(60, 0.0) == 60.0
    assert bucket.left(30.0) == 30.0
    assert bucket.wait(30, 30.0) == 0.0


def test_more_than_it_holds_is_taken_from_a_full_bucket_alone_and_leaves_debt() -> None:
    bucket = Bucket(60, at=0.0)
    assert bucket.wait(600, 0.0) == 0.0
    bucket.take(600, 0.0)
    assert bucket.left(0.0) == -540.0
    assert bucket.wait(1, 0.0) == 541.0
    assert bucket.wait(600, 540.0) == 60.0


def test_what_is_given_back_after_it_flowed_back_is_not_given_twice() -> None:
    bucket = Bucket(60, at=0.0)
    bucket.take(30, 0.0)
    bucket.give_back(30, 100.0)
    assert bucket.left(100.0) == 60.0


def test_another_amount_keeps_what_is_owed() -> None:
    bucket = Bucket(60, at=0.0)
    bucket.take(60, 0.0)
    bucket.allow(120, 30.0)
    assert bucket.left(30.0) == 90.0
    bucket.allow(10, 30.0)
    assert bucket.left(30.0) == -20.0
    assert bucket.until_full(30.0) == 180.0


def test_a_clock_that_goes_back_changes_nothing() -> None:
    bucket = Bucket(60, at=10.0)
    bucket.take(30, 10.0)
    assert bucket.left(5.0) == 30.0
    assert bucket.left(11.0) == 31.0


moves = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 300)), max_size=30)


@given(st.integers(1, 200), moves)
def test_nothing_passes_that_the_amount_a_minute_forbids(amount: int, moves: list[tuple[int, int]]) -> None:
    bucket, now, taken = Bucket(amount, at=0.0), 0, Fraction(0)
    for seconds, units in moves:
        now += seconds
        if bucket.wait(units, now) == 0.0:
            bucket.take(units, now)
            taken += units
            most = amount + Fraction(amount * now, 60) + max(0, units - amount)
            assert taken <= most + Fraction(1, 1000)
        else:
            wait = bucket.wait(units, now)
            assert replace(bucket).wait(units, now + wait / 2) > 0.0
            assert replace(bucket).wait(units, now + wait) == 0.0
