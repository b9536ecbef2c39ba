"""A request's raw body and the JSON object in it: bounded while it is read, strict when it is parsed. Knows no fields.

Python's own parser, because it can be told to refuse what faster ones let pass: NaN and repeated keys.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..errors import InvalidRequest

MAX_DEPTH = 100
MAX_CONTAINERS = 200_000  # Python's parser holds the interpreter while it makes them: about 0.1 s for so many
MAX_KEYS = 50_000  # the same for the keys of objects
MOST_DIGITS = 18
OFF_LOOP_BYTES = 64 * 1024  # parsing less than this takes about a millisecond
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;|$)", re.IGNORECASE)
_CONSTANT = re.compile(rb"NaN|Infinity")  # no JSON, but Python's parser knows them: so that the field can be named
_KEY = re.compile(rb'(?:[^\\]|\\\\)"\s*:')  # in a text the quotes are escaped
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The raw body. Raises HTTPException 415, 408 after `seconds`, or 413 as soon as the limit is passed."""
    # a body without a type is refused too: a web page may send one to a local server without asking
    if not _JSON_TYPE.match(request.headers.get("content-type", "")):
        raise HTTPException(415, "the body must be JSON, sent with the header Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "the body must not be compressed: leave Content-Encoding out")
    announced = request.headers.get("content-length", "").lstrip("0")
    if announced.isdecimal() and (len(announced) > MOST_DIGITS or int(announced) > limit):
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        # the rest of it may still come, byte by byte
        raise HTTPException(408, f"the body did not come within {seconds:g} s", {"Connection": "close"}) from None
    return bytes(body)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`. Raises InvalidRequest, naming the field where it can."""
    if raw.count(b"[") + raw.count(b"{") > MAX_CONTAINERS:
        raise InvalidRequest(f"the body holds more than {MAX_CONTAINERS} brackets")
    if raw.count(b":") > MAX_KEYS and sum(1 for _ in _KEY.finditer(raw)) > MAX_KEYS:
        raise InvalidRequest(f"the body holds more than {MAX_KEYS} keys")
    try:
        value = _decoder.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8 (at byte {error.start})") from None
    except RecursionError:
        raise _too_deep(None) from None
    except ValueError as error:  # also a number with thousands of digits
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    for name, field in value.items():
        _check_depth(name, field)
    if _SURROGATE.search(raw):
        for name, field in value.items():
            _check_text(name, field)
    if _CONSTANT.search(raw):
        for name, field in value.items():
            _check_finite(name, field)
    return value


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body may have at most {limit} bytes")


def _too_deep(param: str | None) -> InvalidRequest:
    return InvalidRequest(f"the body nests deeper than {MAX_DEPTH} levels", param)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise InvalidRequest(f"the key {name[:100]!r} stands twice in one object", name[:100])
        seen.add(name)
    return fields


def _check_depth(param: str, field: object) -> None:
    level, depth = [field], 1
    while level := [child for container in level for child in _children(container) if isinstance(child, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep(param)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_text(param: str, field: object) -> None:
    try:
        json.dumps({param: field}, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest(f"{param[:100]!r} holds a lone surrogate, which is no character", param) from None


def _check_finite(param: str, field: object) -> None:
    try:
        json.dumps(field, allow_nan=False)
    except ValueError:
        raise InvalidRequest(f"{param[:100]!r} holds NaN or infinity, which is no JSON", param) from None


_decoder = json.JSONDecoder(object_pairs_hook=_without_repeats)
