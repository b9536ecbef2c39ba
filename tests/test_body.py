"""body.py: what a client may send is bounded in size, time and shape before anything is made of it."""

import asyncio
import gzip
import json

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from fairstep.errors import InvalidRequest
from fairstep.serving.body import MAX_CONTAINERS, MAX_KEYS, parse_object, read_body

JSON = (b"content-type", b"application/json")


def read(*headers: tuple[bytes, bytes], parts: list[bytes], limit: int = 100, seconds: float = 30.0) -> bytes:
    """read_body of parts that come at once; after the last one nothing comes any more if it is not empty."""
    waiting = list(parts)

    async def receive() -> Message:
        if not waiting:
            await asyncio.Future()
        part = waiting.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    request = Request({"type": "http", "method": "POST", "headers": list(headers)}, receive)
    return asyncio.run(read_body(request, limit, seconds))


@pytest.mark.parametrize(
    ("status", "headers", "parts"),
    [
        (413, [JSON], [b"x" * 60, b"x" * 60, b""]),
        (413, [JSON, (b"content-length", b"101")], []),
        (413, [JSON, (b"content-length", b"9" * 5000)], []),
        (415, [], [b"{}", b""]),
        (415, [JSON, (b"content-encoding", b"gzip")], [gzip.compress(b"{}"), b""]),
        (408, [JSON], [b"{"]),
    ],
)
def test_a_body_that_is_too_much_is_refused(
    status: int, headers: list[tuple[bytes, bytes]], parts: list[bytes]
) -> None:
    with pytest.raises(HTTPException) as refused:
        read(*headers, parts=parts, seconds=0.05)
    assert refused.value.status_code == status


def test_a_body_that_came_too_slowly_ends_its_connection() -> None:
    with pytest.raises(HTTPException) as refused:
        read(JSON, parts=[b"{"], seconds=0.05)
    assert refused.value.headers == {"Connection": "close"}


def test_leading_zeros_of_a_length_are_no_size() -> None:
    assert read(JSON, (b"content-length", b"0" * 5000 + b"2"), parts=[b"{}", b""]) == b"{}"


@pytest.mark.timeout(30)
def test_a_repeated_key_is_found_in_linear_time() -> None:
    body = "{" + ",".join(f'"{n}":1' for n in range(MAX_KEYS - 1)) + ',"777":1}'
    with pytest.raises(InvalidRequest, match="twice") as refused:
        parse_object(body.encode())
    assert refused.value.param == "777"


def test_more_brackets_than_could_be_meant_are_refused_before_they_are_parsed() -> None:
    few = {"prompt": [[1]] * (MAX_CONTAINERS - 2)}
    assert parse_object(json.dumps(few).encode()) == few
    with pytest.raises(InvalidRequest, match="brackets"):
        parse_object(json.dumps({"prompt": [[1]] * MAX_CONTAINERS}).encode())


@pytest.mark.parametrize("key", ["%x", "%x\\", '%x"', "%x:", "%x\n"])
@pytest.mark.parametrize("colon", [":", " \t\n: "])
def test_more_keys_than_could_be_meant_are_refused_before_they_are_parsed(key: str, colon: str) -> None:
    few = {key % number: 1 for number in range(MAX_KEYS - 1)}
    assert parse_object(json.dumps({"logit_bias": few}, separators=(",", colon)).encode()) == {"logit_bias": few}
    with pytest.raises(InvalidRequest, match="keys"):
        parse_object(json.dumps({"logit_bias": {**few, "x": 1}}, separators=(",", colon)).encode())


def test_keys_in_a_text_are_none_of_the_body() -> None:
    prompt = json.dumps({f"{number:x}": 1 for number in range(MAX_KEYS + 1)})
    assert parse_object(json.dumps({"prompt": prompt}).encode()) == {"prompt": prompt}
