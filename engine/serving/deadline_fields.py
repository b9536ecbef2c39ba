"""The time a client gives its request, in the body or in a header, as instants of the engine's clock."""

from ..admission.deadlines import NO_ALLOWANCES, Allowances, Deadlines
from ..errors import InvalidRequest
from .ask import Ask

DEADLINE_HEADER = "X-Deadline-Ms"
MOST_CHARACTERS = 20


def deadlines_of(ask: Ask, header: str | None, received: float, allowances: Allowances = NO_ALLOWANCES) -> Deadlines:
    """From `deadline_ms` or the header, whichever is less, and `ttft_deadline_ms`.

    Raises InvalidRequest, or DeadlineImpossible where there is no time left.
    """
    given = [span for span in (ask.deadline_ms, _number(header)) if span is not None]
    whole = min(given) / 1000 if given else None
    first = None if ask.ttft_deadline_ms is None else ask.ttft_deadline_ms / 1000
    return allowances.deadlines(received, first, whole)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    digits = text.strip().removeprefix("-").replace(".", "", 1)
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_CHARACTERS):
        raise InvalidRequest(f"{DEADLINE_HEADER} must be a number of milliseconds, not {text[:40]!r}", DEADLINE_HEADER)
    return float(text)
