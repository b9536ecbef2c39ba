"""multipart.py: the parts of a form, wherever its boundary falls."""

import mmap
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from fairstep.errors import InvalidRequest
from fairstep.serving.multipart import MOST_PARTS, boundary_of, parts_in


def parts_of(raw: bytes, boundary: bytes) -> list[tuple[str, str | None, bytes]]:
    body: Any = mmap.mmap(-1, max(1, len(raw)))
    body.write(raw)
    try:
        return [(part.name, part.file_name, body[part.start : part.end]) for part in parts_in(body, boundary)]
    finally:
        body.close()


@given(st.binary(max_size=300), st.text('abcé"\\ ;', max_size=10), st.sampled_from((b"\r\n", b"--", b"", b"\r\n--x")))
def test_what_a_client_sends_comes_out_as_it_was(content: bytes, name: str, end: bytes) -> None:
    content += end
    request = httpx.Request("POST", "http://x", data={"purpose": "batch"}, files={"file": (f"{name}.x", content)})
    boundary = boundary_of(request.headers["content-type"])
    [purpose, file] = parts_of(request.read(), boundary)
    assert purpose == ("purpose", None, b"batch")
    assert (file[0], file[2]) == ("file", content)


@pytest.mark.parametrize(
    "raw", [b"", b"nothing", b"--b", b"--b\r\n", b"--b\r\nno head\r\n--b--", b"--b\r\nX: y\r\n\r\nno name\r\n--b--"]
)
def test_what_is_no_form_is_refused_in_words(raw: bytes) -> None:
    with pytest.raises(InvalidRequest, match="no form"):
        parts_of(raw, b"b")


def test_a_form_without_end_or_with_too_many_fields_is_refused() -> None:
    field = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    with pytest.raises(InvalidRequest, match="no form"):
        parts_of(field, b"b")
    with pytest.raises(InvalidRequest, match="more than"):
        parts_of(field * (MOST_PARTS + 1) + b"--b--\r\n", b"b")
    assert len(parts_of(b"preamble\r\n" + field * 3 + b"--b--\r\n", b"b")) == 3


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary="])
def test_another_kind_of_body_is_415(kind: str) -> None:
    with pytest.raises(HTTPException) as caught:
        boundary_of(kind)
    assert caught.value.status_code == 415


def test_a_boundary_may_be_quoted(tmp_path: Path) -> None:
    assert boundary_of('multipart/form-data; boundary="a b"') == b"a b"
