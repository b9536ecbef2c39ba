"""batch_lines.py: a file is checked line by line, and its mistakes are told by their line."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairstep.errors import InvalidRequest
from fairstep.serving import batch_lines
from fairstep.serving.batch_lines import check_lines, lines_in
from fairstep.serving.limits import Limits

GOOD = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}


def written(path: Path, *lines: Any) -> Path:
    file = path / "lines.jsonl"
    file.write_bytes(b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines))
    return file


def test_lines_are_read_as_they_are(tmp_path: Path) -> None:
    chat = {
        **GOOD,
        "custom_id": "b",
        "url": "/v1/chat/completions",
        "body": {"messages": [{"role": "user", "content": "é"}]},
    }
    file = written(tmp_path, GOOD, b"", chat, b"  ")
    assert check_lines(file, Limits()) == 2
    assert [(line.custom_id, line.url, line.body) for line in lines_in(file, Limits())] == [
        ("a", GOOD["url"], GOOD["body"]), ("b", chat["url"], chat["body"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"\xff", "UTF-8"),
        ({**GOOD, "custom_id": ""}, "custom_id"),
        ({**GOOD, "custom_id": "x" * 257}, "custom_id"),
        ({**GOOD, "custom_id": 3}, "custom_id"),
        ({**GOOD, "method": "GET"}, "method"),
        ({**GOOD, "url": "/v1/embeddings"}, "url"),
        ({**GOOD, "body": None}, "body"),
        ({**GOOD, "body": {}}, "prompt"),
        ({**GOOD, "body": {"prompt": "x", "temperature": -1}}, "temperature"),
        ({**GOOD, "body": {"prompt": "x", "stream": True}}, "stream"),
        ({**GOOD, "custom_id": "first"}, "twice"),
    ],
)
def test_the_first_wrong_line_is_told_by_its_number(line: Any, words: str, tmp_path: Path) -> None:
    file = written(tmp_path, {**GOOD, "custom_id": "first"}, line, b"also wrong")
    with pytest.raises(InvalidRequest, match=f"^line 2: .*{words}") as caught:
        check_lines(file, Limits())
    assert caught.value.param == "file"


def test_too_many_too_long_or_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="no line"):
        check_lines(written(tmp_path, b"\n\n"), Limits())
    monkeypatch.setattr(batch_lines, "MOST_LINES", 1)
    with pytest.raises(InvalidRequest, match="more than 1 lines"):
        check_lines(written(tmp_path, GOOD, {**GOOD, "custom_id": "b"}), Limits())
    monkeypatch.setattr(batch_lines, "MOST_LINE_BYTES", 10)
    with pytest.raises(InvalidRequest, match="more than 10 bytes"):
        check_lines(written(tmp_path, GOOD), Limits())
