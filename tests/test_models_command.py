"""`fairstep models`: a line a model, and the memory it needs."""

import json

import pytest

from fairstep.config import EngineConfig, Machine
from fairstep.model.installed import Installed
from fairstep.serving import models_command
from fairstep.serving.models_command import bytes_as_text, count_as_text, list_models, needed

OURS = Installed(
    name="m", path="fairstep", disk=5000, architecture="Llama", parameters=1_000_000, context=512, kv_elements=1024
)
BROKEN = Installed(name="b", path="refused", why="its weights are missing")
CONFIG = EngineConfig(dtype="bfloat16", kv_memory=1024**2, page_size=16, max_seats=4).resolved(Machine())


def test_memory_is_for_the_settings() -> None:
    need = needed(OURS, CONFIG)
    assert need["weights_bytes"] == 2_000_000
    assert need["kv_bytes_token"] == 2048
    assert need["kv_tokens"] == 512
    assert need["kv_bytes_least"] == 2048 * 16 * 4
    wide = needed(OURS, EngineConfig(dtype="float32").resolved(Machine()))
    assert wide["weights_bytes"] == 4_000_000


def test_what_is_unknown_stays_unknown() -> None:
    need = needed(BROKEN, CONFIG)
    assert [need[name] for name in ("parameters", "weights_bytes", "kv_tokens", "context")] == [None] * 4


def test_the_table_has_a_line_a_model_and_reasons_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_command, "installed", lambda paths, decoder: iter([OURS, BROKEN]))
    lines = list_models((), CONFIG, as_json=False).splitlines()
    assert lines[0].split()[:2] == ["model", "architecture"]
    assert lines[1].split() == ["m", "Llama", "1", "M", "4.9", "KiB", "512", "1.9", "MiB", "512", "tokens", "fairstep"]
    assert lines[2].endswith("refused")
    assert lines[3] == "  its weights are missing"
    assert "bfloat16" in lines[-1] and "1.0 MiB" in lines[-1]


def test_a_pool_too_small_for_the_seats_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_command, "installed", lambda paths, decoder: iter([OURS]))
    config = EngineConfig(dtype="float32", kv_memory=1024, max_seats=4).resolved(Machine())
    assert f"--kv-memory {4096 * 16 * 4} or more" in list_models((), config, as_json=False)


def test_json_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_command, "installed", lambda paths, decoder: iter([OURS, BROKEN]))
    listed = json.loads(list_models((), CONFIG, as_json=True))
    assert [each["name"] for each in listed] == ["m", "b"]
    assert listed[1]["why"] == "its weights are missing"


@pytest.mark.parametrize(("count", "text"), [(999, "999"), (1_500_000, "2 M"), (7_241_000_000, "7.2 B")])
def test_counts_as_people_write_them(count: int, text: str) -> None:
    assert count_as_text(count) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, "?"), (5, "5 B"), (2048, "2.0 KiB"), (100 * 1024**2, "100 MiB"), (3 * 1024**3, "3.0 GiB")]
)
def test_sizes_as_people_write_them(size: int | None, text: str) -> None:
    assert bytes_as_text(size) == text
