"""Checks of what a caller gives, each naming its field: numbers, ids, texts. Pure; None always passes.

All raise InvalidParameter.
"""

import math
from collections.abc import Iterable, Mapping

from .errors import InvalidParameter

LARGEST = 2**31 - 1  # of integers that are counts, ids or priorities


class _Ids(tuple[int, ...]):
    """Ids that were checked: params are made again for each sibling, and a list may name a whole vocabulary."""


def number(name: str, value: object, low: float, high: float, *, above_low: bool = False) -> None:
    """A finite number in [low, high], or in (low, high] with `above_low`."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise InvalidParameter(f"{name} must be a finite number, not {value!r}", name)
    if value > high or value < low or (above_low and value == low):
        bracket = "(" if above_low else "["
        raise InvalidParameter(f"{name} must be in {bracket}{low:g}, {high:g}], not {value!r}", name)


def integer(name: str, value: object, low: int, high: int | None) -> None:
    """An integer from `low` to `high` (None: without end)."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameter(f"{name} must be an integer, not {value!r}", name)
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidParameter(f"{name} must be {limit}, not {value}", name)


def flag(name: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidParameter(f"{name} must be true or false, not {value!r}", name)


def printable(name: str, value: object) -> None:
    """Text of at least one character that can be written on a line."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidParameter(f"{name} must be printable text, not {value!r}", name)


def texts(name: str, values: object, *, most: int, longest: int) -> tuple[str, ...]:
    """At most `most` texts of 1 to `longest` characters, as a tuple; one text may stand alone."""
    items = _items(name, (values,) if isinstance(values, str) else values)
    if len(items) > most:
        raise InvalidParameter(f"{name} takes at most {most} strings, not {len(items)}", name)
    for text in items:
        if not isinstance(text, str) or not text or len(text) > longest:
            raise InvalidParameter(f"{name} must be non-empty strings of at most {longest} characters", name)
    return tuple(text for text in items if isinstance(text, str))


def ids(name: str, values: object) -> tuple[int, ...]:
    """Token ids as a tuple, each once; whether a vocabulary has them is not known here."""
    if isinstance(values, _Ids):
        return values
    items = _items(name, values)
    for token in items:
        integer(name, token, 0, LARGEST)
    return _Ids(dict.fromkeys(token for token in items if isinstance(token, int)))


def biases(name: str, values: object, *, most: int, largest: float) -> tuple[tuple[int, float], ...]:
    """What to add to the logits of some ids, as pairs: a mapping, or pairs of which an id's last one counts."""
    try:
        found = dict(values if isinstance(values, Mapping) else _items(name, values))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must map token ids to numbers, not {_short(values)}", name) from None
    if len(found) > most:
        raise InvalidParameter(f"{name} takes at most {most} tokens, not {len(found)}", name)
    for token, bias in found.items():
        integer(name, token, 0, LARGEST)
        number(name, bias, -largest, largest)
        if token is None or bias is None:
            raise InvalidParameter(f"{name} must map token ids to numbers, not {token!r} to {bias!r}", name)
    return tuple((token, float(bias)) for token, bias in found.items())


def _items(name: str, values: object) -> tuple[object, ...]:
    if values is None:
        return ()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise InvalidParameter(f"{name} must be a list, not {_short(values)}", name)
    return tuple(values)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can be
        return False


def _short(value: object) -> str:
    return repr(value)[:80]
