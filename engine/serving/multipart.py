"""The parts of a multipart/form-data body that lies in a file, found without reading it into memory. Knows no field.

RFC 7578.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from mmap import mmap

from starlette.exceptions import HTTPException

from ..errors import InvalidRequest

MOST_PARTS = 20
MOST_HEAD = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """A field: its content is body[start:end]."""

    name: str
    file_name: str | None
    start: int
    end: int


def boundary_of(content_type: str) -> bytes:
    """What parts the fields. Raises HTTPException 415."""
    head = Message()
    head["content-type"] = content_type
    boundary = head.get_param("boundary")
    if head.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not 0 < len(boundary) <= 70:
        raise HTTPException(415, "the body must be a form: Content-Type: multipart/form-data with a boundary")
    return boundary.encode("latin-1", "replace")


def parts_in(body: mmap, boundary: bytes) -> list[Part]:
    """All fields, in their order. Raises InvalidRequest."""
    parts = []
    for part in _parts(body, boundary):
        parts.append(part)
        if len(parts) > MOST_PARTS:
            raise InvalidRequest(f"the form has more than {MOST_PARTS} fields")
    return parts


def _parts(body: mmap, boundary: bytes) -> Iterator[Part]:
    opening, between = b"--" + boundary, b"\r\n--" + boundary
    place = 0 if body[: len(opening)] == opening else body.find(between, 0) + 2
    if place == 1:
        raise _broken()
    place += len(opening)
    while body[place : place + 2] != b"--":
        start = body.find(b"\r\n\r\n", place, place + MOST_HEAD)
        end = body.find(between, start)
        if start < 0 or end < 0:
            raise _broken()
        name, file_name = _named(body[place + 2 : start + 4])
        yield Part(name, file_name, start + 4, end)
        place = end + len(between)


def _named(head: bytes) -> tuple[str, str | None]:
    headers = BytesHeaderParser().parsebytes(head)
    name, file_name = headers.get_param("name", header="content-disposition"), headers.get_filename()
    if not isinstance(name, str):
        raise _broken()
    return name, file_name


def _broken() -> InvalidRequest:
    return InvalidRequest("the body is no form: a part is not where its boundary says")
