"""Calendar months of UTC, counted from January 1970. Pure: Unix seconds in."""

from calendar import isleap, monthrange, timegm
from dataclasses import dataclass
from functools import cached_property

DAY = 86_400  # seconds


@dataclass(frozen=True)
class Month:
    """number: months since January 1970."""

    number: int

    @cached_property
    def starts(self) -> int:
        """Its first instant, in Unix seconds."""
        return timegm((1970 + self.number // 12, self.number % 12 + 1, 1, 0, 0, 0))

    @cached_property
    def ends(self) -> int:
        """The first instant after it."""
        return Month(self.number + 1).starts

    def includes(self, unix: float) -> bool:
        return self.starts <= unix < self.ends

    def __str__(self) -> str:
        return f"{1970 + self.number // 12}-{self.number % 12 + 1:02}"


def month_of(unix: float) -> Month:
    """The month that an instant is in."""
    days, year, month = int(unix // DAY), 1970, 1
    while days >= 365 + isleap(year):
        days -= 365 + isleap(year)
        year += 1
    while days >= monthrange(year, month)[1]:
        days -= monthrange(year, month)[1]
        month += 1
    return Month((year - 1970) * 12 + month - 1)
