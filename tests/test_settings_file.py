"""The TOML file of --config."""

from pathlib import Path

import pytest

from fairstep.errors import ConfigError
from fairstep.serving.settings_file import read_settings


def written(folder: Path, text: str) -> Path:
    path = folder / "fairstep.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_keys_are_the_fields_of_the_config(tmp_path: Path) -> None:
    path = written(tmp_path, 'port = 8001\nkv_memory = "64MiB"\ndeterministic = true\ninter_token_target_ms = 40\n')
    assert read_settings(path) == {
        "port": 8001,
        "kv_memory": "64MiB",
        "deterministic": True,
        "inter_token_target_ms": 40,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_seat = 3", "did you mean max_seats"),
        ("max-seats = 3", "did you mean max_seats"),
        ("Port = 3", "did you mean port"),
        ("zebra = 1", "there are: answers_kept, attention, batch_compute_ms, batch_delay_ms, batch_size"),
        ("[engine]\nport = 1", "there is no setting 'engine'"),
        ('port = "8000"', "port must be an integer"),
        ('deterministic = "yes"', "deterministic must be true or false"),
        ("workers = 0", "workers must be"),
        ("max_seats = 2.5", "max_seats must be a positive integer"),
        ("port = ", "is not TOML"),
        ("port = 1" + "0" * 5000, "is not TOML"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        read_settings(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_settings(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_settings(tmp_path / "none.toml")
