"""What the files beside a vocabulary say, in each of the forms that transformers has written."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairstep.errors import ModelError
from fairstep.text.added_tokens import Added
from fairstep.text.tokenizer_files import TokenizerFiles, read_tokenizer_files


def read(path: Path, **files: Any) -> TokenizerFiles:
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return read_tokenizer_files(path)


def test_no_file_has_to_be_there(tmp_path: Path) -> None:
    assert read_tokenizer_files(tmp_path) == TokenizerFiles({}, {}, (), None)


def test_the_config_wins_over_the_map(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<b>"}, "eos_token": None}
    files = read(tmp_path, tokenizer_config=config, special_tokens_map={"bos_token": "<old>", "eos_token": "<e>"})
    assert files.named == {"bos_token": "<b>", "eos_token": "<e>"}


def test_added_tokens_come_from_every_file_and_keep_their_ids(tmp_path: Path) -> None:
    decoder = {"7": {"content": "<x>", "special": True, "lstrip": True}, "8": {"content": "<t>"}}
    files = read(
        tmp_path,
        tokenizer_config={"added_tokens_decoder": decoder, "extra_special_tokens": ["<more>"]},
        added_tokens={"<x>": 7, "<old>": 9, "</s>": 10},
        special_tokens_map={"eos_token": "</s>", "additional_special_tokens": [{"content": "<t>"}]},
    )
    assert files.added == (
        Added("<x>", 7, special=True, lstrip=True),
        Added("<t>", 8, special=True),
        Added("<old>", 9),
        Added("</s>", 10, special=True),
        Added("<more>", None, special=True),
    )


def test_a_flag_that_is_null_is_not_given(tmp_path: Path) -> None:
    files = read(tmp_path, tokenizer_config={"legacy": None, "add_bos_token": False})
    assert [files.flag(name, True) for name in ("legacy", "add_bos_token", "add_eos_token")] == [True, False, True]


def test_of_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert read(tmp_path, tokenizer_config={"chat_template": named}).template == "plain"
    assert read(tmp_path, tokenizer_config={"chat_template": named[:1]}).template is None
    assert read(tmp_path, tokenizer_config={"chat_template": "one"}).template == "one"
    (tmp_path / "chat_template.jinja").write_text("own")
    assert read_tokenizer_files(tmp_path).template == "own"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer_config", "{"),
        ("tokenizer_config", "[]"),
        ("tokenizer_config", '{"added_tokens_decoder": 5}'),
        ("tokenizer_config", '{"added_tokens_decoder": {"x": {"content": "<x>"}}}'),
        ("tokenizer_config", '{"added_tokens_decoder": {"1": {}}}'),
        ("special_tokens_map", "no"),
        ("added_tokens", '{"<x>": "7"}'),
    ],
)
def test_a_broken_file_is_refused_by_name(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(ModelError, match=name):
        read_tokenizer_files(tmp_path)
