"""Whole models from directories and files: the tensors are those that transformers loads."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from fairstep.errors import ModelError
from fairstep.model.gguf_file import unpermute
from fairstep.model.gguf_header import read_gguf_header
from fairstep.model.loading import WEIGHTS, load, read_spec
from fairstep.model.sources import resolve
from fairstep.model.spec import ModelSpec, RopeSpec
from fairstep.model.tensor_shapes import OUTPUT, tensor_shapes
from tiny_gguf import write_gguf
from tiny_models import FAMILIES, tiny_family, tiny_llama, tiny_mistral

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def assert_as_transformers(path: Path, dtype: torch.dtype = torch.float32) -> None:
    loaded = load(resolve(str(path)), dtype, "cpu")
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).state_dict()
    if loaded.spec.tied:
        del reference[OUTPUT]
    assert set(loaded.tensors) == set(reference)
    for name, tensor in reference.items():
        assert loaded.tensors[name].dtype == dtype
        assert torch.equal(loaded.tensors[name], tensor), name


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"tied": True},
        {"shards": 3},
        {"shards": 3, "tied": True},
        {"attention_bias": True, "mlp_bias": True},
        {"head_dim": 32, "kv_heads": 4},
        {"rope": LLAMA3},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_llama_directory_is_loaded_as_transformers_does(
    tmp_path: Path, features: dict[str, Any], dtype: torch.dtype
) -> None:
    path = tiny_llama(tmp_path, **features)
    assert len(list(path.glob("*.safetensors"))) >= features.get("shards", 1)
    assert_as_transformers(path, dtype)


def test_a_mistral_directory_is_loaded_as_transformers_does(tmp_path: Path) -> None:
    assert_as_transformers(tiny_mistral(tmp_path, shards=2))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_loaded_as_transformers_does(tmp_path: Path, family: str) -> None:
    assert_as_transformers(tiny_family(tmp_path, family, shards=2))


@pytest.mark.parametrize("change", [0.0, 1.0])
def test_a_stored_output_layer_counts_only_if_it_differs(tmp_path: Path, change: float) -> None:
    """transformers ties two stored tensors only when they are equal."""
    path = tiny_llama(tmp_path, tied=True)
    tensors = load_file(path / "model.safetensors")
    tensors[OUTPUT] = tensors["model.embed_tokens.weight"] + change
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    loaded = load(resolve(str(path)), torch.float32, "cpu")
    assert loaded.spec.tied is (change == 0.0)
    assert (OUTPUT in loaded.tensors) is (change != 0.0)


def test_a_config_that_contradicts_its_tensors_is_an_error(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 4}))
    shapes = r"k_proj\.weight has shape \[32, 64\], the model's config says \[64, 64\]"
    with pytest.raises(ModelError, match=shapes):
        load(resolve(str(path)), torch.float32, "cpu")


def test_an_untied_model_without_an_output_layer_is_an_error(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path, tied=True)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(ModelError, match=r"no tensor lm_head\.weight"):
        load(resolve(str(path)), torch.float32, "cpu")


def test_directory_and_gguf_give_the_same_model(tmp_path: Path) -> None:
    directory = resolve(str(tiny_llama(tmp_path / "model", attention_bias=True)))
    file = resolve(str(write_gguf(tmp_path / "model.gguf", directory.path)))
    one, other = (load(source, torch.float32, "cpu") for source in (directory, file))
    assert read_spec(file) == other.spec
    assert set(one.tensors) == set(other.tensors)
    assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def test_progress_names_what_is_done_and_rises_to_one(tmp_path: Path) -> None:
    heard: list[tuple[str, float]] = []
    load(resolve(str(tiny_llama(tmp_path))), torch.float32, "cpu", lambda what, done: heard.append((what, done)))
    assert {what for what, _ in heard} == {WEIGHTS}
    assert [done for _, done in heard] == sorted(done for _, done in heard) and heard[-1][1] == 1.0


@pytest.mark.real
def test_the_default_model_is_what_its_card_says() -> None:
    assert read_spec(resolve("smollm2")) == ModelSpec(
        architecture="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        context=8192,
        norm_eps=pytest.approx(1e-5),
        rope=RopeSpec(theta=100_000.0),
        tied=True,
        eos_ids=(2,),
        bos_id=1,
    )


@pytest.mark.real
def test_the_default_model_is_loaded_whole() -> None:
    source = resolve("smollm2")
    loaded = load(source, torch.float32, "cpu")
    assert {name: tuple(tensor.shape) for name, tensor in loaded.tensors.items()} == tensor_shapes(loaded.spec)
    stored = read_gguf_header(source.path).tensors
    for name, gguf_name, heads in [
        ("model.embed_tokens.weight", "token_embd.weight", 0),
        ("model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", 9),
        ("model.layers.29.self_attn.k_proj.weight", "blk.29.attn_k.weight", 3),
        ("model.layers.7.mlp.down_proj.weight", "blk.7.ffn_down.weight", 0),
        ("model.norm.weight", "output_norm.weight", 0),
    ]:
        tensor = stored[gguf_name]
        raw = np.fromfile(source.path, np.uint8, count=tensor.size, offset=tensor.offset)
        values = torch.from_numpy(dequantize(raw.reshape(tensor.shape[0], -1), tensor.kind)).view(tensor.shape)
        assert torch.equal(loaded.tensors[name], unpermute(values, heads) if heads else values), name
