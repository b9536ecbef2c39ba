"""month.py: calendar months of UTC."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.month import Month, month_of


@given(st.datetimes(datetime(1970, 1, 1), datetime(2300, 1, 1)))
def test_months_are_those_of_the_calendar(moment: datetime) -> None:
    unix = moment.replace(tzinfo=UTC).timestamp()
    month = month_of(unix)
    assert month.number == (moment.year - 1970) * 12 + moment.month - 1
    assert month.includes(unix)
    assert datetime.fromtimestamp(month.starts, UTC) == datetime(moment.year, moment.month, 1, tzinfo=UTC)


@pytest.mark.parametrize("month", ["2024-02", "2026-12", "1970-01"])
def test_a_month_ends_where_the_next_begins(month: str) -> None:
    year, number = map(int, month.split("-"))
    this = Month((year - 1970) * 12 + number - 1)
    assert str(this) == month
    assert not this.includes(this.ends) and this.includes(this.ends - 0.001)
    assert month_of(this.ends).number == this.number + 1
