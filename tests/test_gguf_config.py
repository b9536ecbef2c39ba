"""GGUF metadata as a ModelSpec, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from fairstep.errors import ModelError
from fairstep.model.gguf_config import read_gguf_spec
from fairstep.model.gguf_header import read_gguf_header
from fairstep.model.hf_config import read_hf_spec
from fairstep.model.rope import frequencies
from fairstep.model.spec import ModelSpec, RopeSpec
from tiny_gguf import write_gguf
from tiny_models import tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"), layers=1)


def read(path: Path, model: Path, metadata: dict[str, Any] | None = None, **options: Any) -> ModelSpec:
    return read_gguf_spec(read_gguf_header(write_gguf(path / "model.gguf", model, metadata=metadata, **options)))


def refused(path: Path, model: Path, match: str, metadata: dict[str, Any] | None = None, **options: Any) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        read(path, model, metadata, **options)
    assert "model.gguf: " in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "features", [{}, {"tied": True}, {"attention_bias": True, "mlp_bias": True}, {"head_dim": 32, "kv_heads": 1}]
)
def test_the_spec_is_that_of_the_directory_it_was_made_from(tmp_path: Path, features: dict[str, Any]) -> None:
    directory = tiny_llama(tmp_path / "model", layers=1, **features)
    spec = read(tmp_path, directory)
    assert spec.norm_eps == pytest.approx(1e-6)  # kept in single precision
    assert replace(spec, norm_eps=1e-6, architecture="LlamaForCausalLM") == read_hf_spec(directory)


def test_a_head_is_as_long_as_what_is_rotated(tmp_path: Path, model: Path) -> None:
    no_length = {"llama.attention.key_length": None, "llama.attention.value_length": None}
    assert read(tmp_path, model, {**no_length, "llama.rope.dimension_count": 8}).head_dim == 8
    assert read(tmp_path, model, {**no_length, "llama.rope.dimension_count": None}).head_dim == 16


def test_the_vocabulary_is_counted_when_its_size_is_absent(tmp_path: Path, model: Path) -> None:
    assert read(tmp_path, model, {"llama.vocab_size": None, "tokenizer.ggml.tokens": ["a", "b"]}).vocab_size == 2
    refused(tmp_path, model, r"llama\.vocab_size is missing", {"llama.vocab_size": None})


def test_all_ids_that_end_an_answer_are_found_once(tmp_path: Path, model: Path) -> None:
    ids = {"eos_token_id": 3, "eot_token_id": 5, "eom_token_id": 3}
    assert read(tmp_path, model, {f"tokenizer.ggml.{key}": value for key, value in ids.items()}).eos_ids == (3, 5)


def test_sampling_defaults_are_those_of_the_file(tmp_path: Path, model: Path) -> None:
    metadata = {"general.sampling.temp": 0.5, "general.sampling.top_k": 20}
    assert read(tmp_path, model, metadata).defaults == {"temperature": 0.5, "top_k": 20}


@pytest.mark.parametrize(
    "keys",
    [
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scale_linear": 4.0},
    ],
)
def test_linear_rope_scaling_in_both_spellings(tmp_path: Path, model: Path, keys: dict[str, Any]) -> None:
    assert read(tmp_path, model, keys).rope == RopeSpec(theta=1e4, kind="linear", factor=4.0)


def test_stored_frequency_factors_are_kept(tmp_path: Path, model: Path) -> None:
    factors = np.array([1, 1, 1, 1.5, 2, 4, 8, 8], np.float32)
    spec = read(tmp_path, model, tensors={"rope_freqs.weight": factors})
    assert spec.rope == RopeSpec(theta=1e4, frequency_factors=tuple(factors.tolist()))
    assert torch.allclose(frequencies(spec.rope, 16) * torch.from_numpy(factors), frequencies(RopeSpec(), 16))


def test_a_window_closes_on_every_layer(tmp_path: Path, model: Path) -> None:
    assert read(tmp_path, model, {"llama.attention.sliding_window": 256}).windows == (256,)
    assert read(tmp_path, model, {"llama.attention.sliding_window": 512}).windows == ()


@pytest.mark.parametrize(("pattern", "windows"), [([True, False, True], (9, 0, 9)), (2, (9, 0, 9)), (3, (9, 9, 0))])
def test_a_file_may_say_which_layers_have_the_window(tmp_path: Path, pattern: Any, windows: tuple[int, ...]) -> None:
    directory = tiny_llama(tmp_path / "model", layers=3)
    keys = {"llama.attention.sliding_window": 9, "llama.attention.sliding_window_pattern": pattern}
    assert read(tmp_path, directory, keys).windows == windows


def test_a_pattern_for_other_layers_is_refused(tmp_path: Path, model: Path) -> None:
    keys = {"llama.attention.sliding_window": 9, "llama.attention.sliding_window_pattern": [True, False]}
    refused(tmp_path, model, r"sliding_window_pattern must hold true or false for each of 1 layers", keys)


def test_yarn_is_read_and_reaches_past_the_original_context(tmp_path: Path, model: Path) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 512}
    spec = read(tmp_path, model, {f"llama.rope.scaling.{key}": value for key, value in scaling.items()})
    assert (spec.rope, spec.context) == (RopeSpec(theta=1e4, kind="yarn", factor=4.0, original_context=512), 2048)


@pytest.mark.parametrize(
    ("factors", "match"),
    [
        (np.ones(7, np.float32), r"rope_freqs\.weight must be F32 \[8\], not F32 \[7\]"),
        (np.ones(8, np.float16), r"rope_freqs\.weight must be F32 \[8\], not F16 \[8\]"),
        (np.zeros(8, np.float32), r"rope_freqs\.weight must be numbers above 0"),
    ],
)
def test_senseless_frequency_factors_are_refused(tmp_path: Path, model: Path, factors: np.ndarray, match: str) -> None:
    refused(tmp_path, model, match, tensors={"rope_freqs.weight": factors})


@pytest.mark.parametrize(
    ("kind", "name"),
    [("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("Q8_0", "bfloat16")],
)
def test_the_native_dtype_is_that_of_most_weights(tmp_path: Path, model: Path, kind: str, name: str) -> None:
    assert read(tmp_path, model, kind=GGMLQuantizationType[kind]).native_dtype == name


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, model: Path, key: str) -> None:
    refused(tmp_path, model, rf"llama\.{key} is missing", {f"llama.{key}": None})


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"llama.block_count": 0}, r"llama\.block_count must be an integer from 1 to 4096, not 0"),
        ({"llama.attention.head_count": "4"}, r"llama\.attention\.head_count must be an integer"),
        ({"llama.attention.head_count_kv": 3}, r"llama\.attention\.head_count_kv \(3\) must divide"),
        ({"llama.expert_count": 8}, r"llama\.expert_count is set: mixtures of experts"),
        ({"llama.rope.scaling.type": "su"}, r"llama\.rope\.scaling\.type is su; known are none, linear, yarn"),
        ({"llama.rope.dimension_count": 8}, r"llama\.rope\.dimension_count \(8\) must be the even head size \(16\)"),
        ({"llama.attention.value_length": 8}, r"value_length differs from the key's length \(16\)"),
        ({"tokenizer.ggml.eos_token_id": 320}, r"tokenizer\.ggml\.eos_token_id must be token ids below .* 320"),
        ({"general.sampling.top_p": 1.5}, r"general\.sampling\.top_p is no top_p to sample with: 1\.5"),
    ],
)
def test_senseless_or_unknown_is_refused_by_name(
    tmp_path: Path, model: Path, metadata: dict[str, Any], match: str
) -> None:
    refused(tmp_path, model, match, metadata)


def test_another_architecture_is_named(tmp_path: Path, model: Path) -> None:
    refused(tmp_path, model, r"general\.architecture is mamba; known are llama, qwen2", architecture="mamba")
