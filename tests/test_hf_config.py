"""config.json and generation_config.json as a ModelSpec, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairstep.errors import ModelError
from fairstep.model.hf_config import read_hf_spec
from fairstep.model.spec import ModelSpec, RopeSpec
from tiny_models import tiny_llama, tiny_mistral

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
LLAMA3_SPEC = RopeSpec(
    theta=5e5, kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=128
)


def read(path: Path, generation: object = None, **changes: Any) -> ModelSpec:
    """The spec of LLAMA with changes; a change to None is JSON's null, to ... takes the key out."""
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return read_hf_spec(path)


def refused(path: Path, match: str, generation: object = None, **changes: Any) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        read(path, generation, **changes)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_what_transformers_writes_is_read(tmp_path: Path) -> None:
    spec = read_hf_spec(tiny_llama(tmp_path, tied=True, attention_bias=True, mlp_bias=True, head_dim=32, context=256))
    assert spec == ModelSpec(
        architecture="LlamaForCausalLM",
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        context=256,
        norm_eps=1e-6,
        rope=RopeSpec(theta=10_000.0),
        tied=True,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        native_dtype="float32",
        eos_ids=(1,),
        bos_id=0,
    )


def test_mistral_without_a_window_is_read(tmp_path: Path) -> None:
    assert read_hf_spec(tiny_mistral(tmp_path)).architecture == "MistralForCausalLM"


@pytest.mark.parametrize("window", [..., None, 512, 4096])
def test_a_window_that_never_closes_is_none(tmp_path: Path, window: object) -> None:
    assert read(tmp_path, architectures=["MistralForCausalLM"], sliding_window=window).context == 512


def test_a_window_in_a_family_without_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "sliding_window is 511, less than the context: this family has no windows", sliding_window=511)


def test_absent_keys_take_transformers_defaults(tmp_path: Path) -> None:
    spec = read(tmp_path)
    assert (spec.kv_heads, spec.head_dim) == (4, 16)
    assert (spec.tied, spec.qkv_bias, spec.mlp_bias) == (False, False, False)
    assert (spec.native_dtype, spec.eos_ids, spec.bos_id, spec.defaults) == ("float32", (), None, {})


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_both_spellings_of_the_dtype(tmp_path: Path, key: str) -> None:
    assert read(tmp_path, **{key: "bfloat16"}).native_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("keys", "rope"),
    [
        ({}, RopeSpec(theta=1e4)),
        ({"rope_theta": 5e5, "rope_scaling": None}, RopeSpec(theta=5e5)),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, RopeSpec(theta=1e4, kind="linear", factor=2.0)),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}, LLAMA3_SPEC),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, RopeSpec(theta=5e5)),
        ({"rope_parameters": {"rope_theta": 5e5}}, RopeSpec(theta=5e5)),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4}},
            RopeSpec(kind="linear", factor=4),
        ),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}, LLAMA3_SPEC),
        ({"rope_parameters": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 5e5}, LLAMA3_SPEC),
    ],
)
def test_both_spellings_of_rope(tmp_path: Path, keys: dict[str, Any], rope: RopeSpec) -> None:
    assert read(tmp_path, **keys).rope == rope


def test_every_kind_of_rope_is_read(tmp_path: Path) -> None:
    def rope(**keys: Any) -> RopeSpec:
        return read(tmp_path, rope_scaling=keys).rope

    assert rope(type="dynamic", factor=2) == RopeSpec(kind="dynamic", factor=2.0, original_context=512)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert rope(**yarn) == RopeSpec(kind="yarn", factor=4.0, original_context=128)
    tuned = {"beta_fast": 8, "beta_slow": 2, "truncate": False, "mscale": 0.7, "mscale_all_dim": 0.5}
    assert rope(**yarn, **tuned, attention_factor=1.5) == RopeSpec(
        kind="yarn",
        factor=4.0,
        original_context=128,
        magnitude=1.5,
        beta_fast=8.0,
        beta_slow=2.0,
        truncate=False,
        mscale=0.7,
        mscale_all=0.5,
    )
    plain = {"mscale": 1.0, "mscale_all_dim": 0}  # as checkpoints have it: off
    assert rope(**yarn, **plain) == RopeSpec(kind="yarn", factor=4.0, original_context=128, mscale=1.0)
    factors = {"short_factor": [1] * 8, "long_factor": [2.5] * 8}
    assert rope(type="longrope", original_max_position_embeddings=128, **factors) == RopeSpec(
        kind="longrope", factor=4.0, original_context=128, short_factors=(1.0,) * 8, long_factors=(2.5,) * 8
    )


def test_the_context_before_scaling_beside_the_rope_counts_first(tmp_path: Path) -> None:
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert read(tmp_path, rope_scaling=rope, original_max_position_embeddings=64).rope.original_context == 64


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"type": "linear", "factor": 4.0}, 512),
        ({"type": "dynamic", "factor": 2.5}, 1280),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 2048),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 512),
    ],
)
def test_scaling_that_reaches_past_the_config_s_context_makes_it_longer(
    tmp_path: Path, rope: dict[str, Any], context: int
) -> None:
    assert read(tmp_path, rope_scaling=rope).context == context


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"rope_scaling": {"type": "mrope"}}, r"rope_scaling\.rope_type is mrope; known are default, linear"),
        ({"rope_parameters": {"rope_type": "longrope"}}, r"rope_parameters\.short_factor must be a list of 8 numbers"),
        ({"rope_scaling": {"type": "dynamic"}}, r"rope_scaling\.factor is missing"),
        ({"rope_scaling": {"type": "yarn", "factor": -1}}, r"rope_scaling\.factor must be a number above 0, not -1"),
        ({"rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, r"rope_scaling\.factor must be a number above 0, not 0"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, r"rope_scaling\.low_freq_factor is missing"),
        (
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}},
            r"must be above low_freq_factor",
        ),
        ({"rope_scaling": "linear"}, r"rope_scaling must be an object, not 'linear'"),
        ({"rope_theta": "many"}, r"rope_theta must be a number above 0, not 'many'"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor is not 1"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, r"partial_rotary_factor is not 1"),
    ],
)
def test_other_kinds_of_rope_are_refused_by_name(tmp_path: Path, keys: dict[str, Any], match: str) -> None:
    refused(tmp_path, match, **keys)


@pytest.mark.parametrize("key", [key for key in LLAMA if key != "architectures"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    refused(tmp_path, rf"config\.json: {key} is missing", **{key: ...})


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many", [4], 2**40])
@pytest.mark.parametrize("key", ["vocab_size", "num_hidden_layers", "head_dim", "num_key_value_heads"])
def test_a_senseless_size_is_named(tmp_path: Path, key: str, value: object) -> None:
    refused(tmp_path, rf"config\.json: {key} must be an integer from 1 to", **{key: value})


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        (
            {"architectures": ["BertForMaskedLM"]},
            "architectures is BertForMaskedLM; known are LlamaForCausalLM, Mistral",
        ),
        ({"architectures": ...}, "architectures must be a list of one name, not None"),
        ({"hidden_act": "relu"}, "hidden_act is relu; known are silu, "),
        ({"num_key_value_heads": 3}, r"num_key_value_heads \(3\) must divide num_attention_heads \(4\)"),
        ({"hidden_size": 66}, r"hidden_size \(66\) is not a multiple of num_attention_heads \(4\)"),
        ({"head_dim": 15}, "head_dim must be even for rotary positions, not 15"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number above 0"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false, not 'yes'"),
        ({"torch_dtype": "float8"}, "torch_dtype is float8; known are float32, bfloat16, float16"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is set: .* GGUF"),
        ({"eos_token_id": 320}, "eos_token_id must be token ids below the vocabulary of 320, not 320"),
        ({"eos_token_id": [1, -1]}, "eos_token_id must be token ids .* not -1"),
    ],
)
def test_what_would_compute_something_else_is_refused(tmp_path: Path, keys: dict[str, Any], match: str) -> None:
    refused(tmp_path, match, **keys)


@pytest.mark.parametrize(("text", "match"), [("{", "is not valid JSON"), ("[]", "must hold a JSON object, not list")])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_broken_json_is_an_error(tmp_path: Path, file: str, text: str, match: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / file).write_text(text)
    with pytest.raises(ModelError, match=rf"{file} {match}"):
        read_hf_spec(tmp_path)


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ModelError, match="is not valid JSON"):
        read_hf_spec(tmp_path)


def test_a_missing_config_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json cannot be read: No such file"):
        read_hf_spec(tmp_path)


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [(2, None, (2,)), ([2, 3], {}, (2, 3)), (2, {"eos_token_id": [4, 5]}, (4, 5)), (2, {"eos_token_id": 6}, (6,))],
)
def test_the_generation_config_decides_what_ends_an_answer(
    tmp_path: Path, config: object, generation: object, ids: tuple[int, ...]
) -> None:
    assert read(tmp_path, generation, eos_token_id=config).eos_ids == ids


@pytest.mark.parametrize("switch", [{}, {"do_sample": True}, {"do_sample": None}])
def test_sampling_defaults_are_those_given(tmp_path: Path, switch: dict[str, Any]) -> None:
    given = {"temperature": 0.6, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.1}
    assert read(tmp_path, {**given, **switch, "min_p": None, "length_penalty": 2.0}).defaults == given


def test_do_sample_false_switches_sampling_defaults_off(tmp_path: Path) -> None:
    assert read(tmp_path, {"do_sample": False, "temperature": 0.6}).defaults == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_k", 1.5),
        ("top_k", -2),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", 2),
        ("repetition_penalty", 0),
    ],
)
def test_a_senseless_sampling_default_is_named(tmp_path: Path, key: str, value: object) -> None:
    refused(tmp_path, rf"generation_config\.json: {key} is no {key} to sample with", {key: value})
