"""Command line over file over defaults, and where each value came from."""

from pathlib import Path

import pytest

from fairstep.config import MIB, Machine
from fairstep.serving.settings import Settings, readable_size


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text("port = 1\nmax_seats = 7\n", encoding="utf-8")
    return path


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults(file: Path) -> None:
    settings = Settings.settle({"port": 2, "host": None}, file, Machine(cores=3))
    config = settings.config
    assert (config.port, config.max_seats, config.host, config.threads) == (2, 7, "127.0.0.1", 3)
    origins = {key: settings.origins[key] for key in ("port", "max_seats", "host", "threads")}
    assert origins == {"port": "command line", "max_seats": "my.toml", "host": "default", "threads": "found"}


def test_false_on_the_command_line_is_a_value(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("deterministic = true", encoding="utf-8")
    assert Settings.settle({"deterministic": False}, path, Machine()).config.deterministic is False


def test_the_table_shows_each_setting_with_its_value_and_origin(file: Path) -> None:
    settings = Settings.settle({}, file, Machine(cores=2))
    lines = settings.table().splitlines()
    assert len(lines) == len(settings.origins)
    assert any(line.split() == ["max_seats", "7", "my.toml"] for line in lines)
    assert any(line.split() == ["kv_memory", "256MiB", "found"] for line in lines)
    assert any(line.split() == ["max_model_len", "the", "model's", "default"] for line in lines)
    assert any(line.split() == ["tenants", "none", "default"] for line in lines)
    assert any(line.split() == ["max_queue_tokens", "no", "limit", "default"] for line in lines)


@pytest.mark.parametrize(("size", "text"), [(256 * MIB, "256MiB"), (3000, "3000"), (1024, "1KiB"), (2**31, "2GiB")])
def test_sizes_are_shown_as_written(size: int, text: str) -> None:
    assert readable_size(size) == text
