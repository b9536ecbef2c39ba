"""A tiny random model with a real tokenizer, served in this process: for replays that need logits and the sampler."""

import json
from pathlib import Path

from fairstep import EngineConfig
from live_server import LiveServer
from tiny_models import tiny_llama

EOS, SECOND_EOS = 1, 3
SEATS = 64


def tiny_directory(path: Path) -> Path:
    """A model of two layers that may end with either of two ids, in float32."""
    tiny_llama(path, seed=4)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, SECOND_EOS]}), encoding="utf-8")
    return path


def tiny_config(**changes: object) -> EngineConfig:
    return EngineConfig(dtype="float32", threads=1, max_seats=SEATS, step_tokens=256, kv_memory="32MiB", **changes)  # type: ignore[arg-type]


def tiny_server(path: Path, **changes: object) -> LiveServer:
    return LiveServer(str(tiny_directory(path)), tiny_config(**changes), in_process=True, model_name="tiny")
