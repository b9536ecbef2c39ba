"""Which path computes a model, and what the worker says of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairstep.door import Ready
from fairstep.errors import ConfigError, ModelError
from fairstep.model.building import build_runner
from fairstep.model.fields import NotOurs
from fairstep.model.runner import TorchRunner
from fairstep.stepping.settings import StepSettings
from pairs import config
from reference import reference_model
from tiny_gguf import write_gguf
from tiny_models import tiny_family, tiny_llama
from tiny_others import tiny_other

SLOWER = "computed by transformers' own code, slower than fairstep's decoder: "


def build(path: Path, **changes: Any) -> tuple[TorchRunner, StepSettings, Ready]:
    heard: list[tuple[str, float]] = []
    built = build_runner(str(path), config(**changes), lambda what, part: heard.append((what, part)))
    assert heard[-1][1] == 1.0
    return built


def test_our_decoder_is_used_where_it_can_be(tmp_path: Path) -> None:
    ready = build(tiny_llama(tmp_path))[2]
    assert (ready.path, ready.architecture, ready.notes) == ("fairstep", "LlamaForCausalLM", ())


def test_any_other_architecture_goes_through_transformers_and_a_note_says_why(tmp_path: Path) -> None:
    path = tiny_other(tmp_path, "deepseek_v3")
    _, settings, ready = build(path, kv_memory="1MiB", max_model_len=100)
    assert (ready.path, ready.architecture) == ("transformers", "DeepseekV3ForCausalLM")
    assert len(ready.notes) == 1 and ready.notes[0].startswith(SLOWER)
    assert "architectures is DeepseekV3ForCausalLM" in ready.notes[0]
    assert (ready.vocab_size, ready.context, ready.eos_ids, ready.dtype) == (320, 100, (1,), "float32")
    assert ready.pages == settings.pages == 1024**2 // (2 * 4 * (24 + 12) * 4 * 16)
    assert ready.parameters == reference_model(str(path)).num_parameters()
    assert set(ready.seconds) == {"config", "weights", "decoder", "warm up"}


def test_a_familiar_class_under_another_model_type_goes_through_transformers(tmp_path: Path) -> None:
    """transformers computes EXAONE as a Llama; its tensors have other names."""
    path = tiny_other(tmp_path, "exaone")
    assert json.loads((path / "config.json").read_bytes())["architectures"] == ["LlamaForCausalLM"]
    _, _, ready = build(path)
    assert ready.path == "transformers"
    assert "model_type is exaone, not llama" in ready.notes[0]


def test_the_path_can_be_forced(tmp_path: Path) -> None:
    ready = build(tiny_llama(tmp_path), decoder="transformers")[2]
    assert ready.path == "transformers"
    assert ready.notes == (f"{SLOWER}decoder is transformers",)


def test_our_decoder_asked_for_in_vain_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotOurs, match="architectures is GPTNeoXForCausalLM"):
        build(tiny_other(tmp_path, "gpt_neox"), decoder="fairstep")


def test_transformers_takes_no_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", tiny_llama(tmp_path / "model"))
    with pytest.raises(ModelError, match="takes a model directory, not a gguf file"):
        build(path, decoder="transformers")


def test_an_unknown_decoder_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="decoder must be one of auto, fairstep, transformers, not 'vllm'"):
        config(decoder="vllm")


def test_what_neither_path_computes_is_refused_by_the_second(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"layer_types has conv: Lfm2ForCausalLM has layers that keep state"):
        build(tiny_other(tmp_path, "lfm2"))
    with pytest.raises(ModelError, match=r"InklingForCausalLM cannot be served: InklingAttention attends with"):
        build(tiny_other(tmp_path / "bias", "inkling"))


def test_a_pool_too_small_for_the_seats_is_told_on_either_path(tmp_path: Path) -> None:
    for path in (tiny_llama(tmp_path / "ours"), tiny_other(tmp_path / "other", "gpt_neox")):
        with pytest.raises(ConfigError, match="set kv_memory to"):
            build(path, kv_memory=1000)


@pytest.mark.parametrize(
    ("family", "rope", "edge", "switches"),
    [
        ("llama", {"rope_type": "default", "rope_theta": 1e4}, 0, False),
        ("llama", {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}, 64, False),
        (
            "phi3",
            {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
            64,
            True,
        ),
    ],
)
def test_the_step_loop_learns_where_rope_depends_on_the_length(
    family: str, rope: dict[str, Any], edge: int, switches: bool, tmp_path: Path
) -> None:
    context = {"max_position_embeddings": 128 if switches else 64, "original_max_position_embeddings": 64}
    rope = {**rope, "original_max_position_embeddings": 64} if switches else rope
    settings = build(tiny_family(tmp_path, family, rope_parameters=rope, **context))[1]
    assert (settings.rope_edge, settings.rope_switches) == (edge, switches)
