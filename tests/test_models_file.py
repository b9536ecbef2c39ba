"""models_file.py: which models are served, by the words of a command line and by a file."""

from pathlib import Path

import pytest

from fairstep.errors import ConfigError
from fairstep.serving.models_file import models_named, read_models


@pytest.mark.parametrize(
    ("words", "name", "found"),
    [
        (["smollm2"], None, {"smollm2": "smollm2"}),
        (["/a/b.gguf"], "chat", {"chat": "/a/b.gguf"}),
        (["chat=smollm2"], None, {"chat": "smollm2"}),
        (["chat=/a=b/c", "draft=d"], None, {"chat": "/a=b/c", "draft": "d"}),
        (["/with=sign"], None, {"/with=sign": "/with=sign"}),
    ],
)
def test_words_name_models(words: list[str], name: str | None, found: dict[str, str]) -> None:
    assert models_named(words, name) == found


@pytest.mark.parametrize(
    ("words", "name", "why"),
    [
        (["a", "b"], None, "each needs a name, as NAME=a"),
        (["x=a", "x=b"], None, "two models are named x"),
        (["x=a"], "y", "served_model_name"),
    ],
)
def test_words_that_name_none(words: list[str], name: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        models_named(words, name)


def test_a_file_names_models(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models]\nchat = "smollm2"\n"big.one" = "/models/big"\n')
    assert read_models(file) == {"chat": "smollm2", "big.one": "/models/big"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must name one model at least"),
        ("[models]\n", "must name one model at least"),
        ("[models]\nchat = 3\n", "models.chat must be a model's name or path, not 3"),
        ('chat = "smollm2"\n', "there is no 'chat' in a models file"),
        ("[models\n", "is not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_models(file)
