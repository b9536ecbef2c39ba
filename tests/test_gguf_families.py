"""Every family out of a GGUF file computes what it computes out of the directory that the file was made from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from fairstep.errors import ModelError
from fairstep.model.backend import TorchBackend
from fairstep.model.batch import StepBatch
from fairstep.model.decoder import Decoder
from fairstep.model.gguf_config import read_gguf_spec
from fairstep.model.gguf_header import read_gguf_header
from fairstep.model.hf_config import read_hf_spec
from fairstep.model.kv import KVMemory
from fairstep.model.loading import load
from fairstep.model.sources import resolve
from hand_made_plans import Hand
from tiny_gguf import write_gguf
from tiny_models import tiny_family
from tiny_others import tiny_other

LENGTH = 40
IDS = [(7 * place) % 300 + 4 for place in range(LENGTH)]
# what llama.cpp's code fixes for a family, so that no file can say otherwise
FIXED: dict[str, dict[str, Any]] = {
    "qwen2": {"use_sliding_window": False},
    "gemma2": {"query_pre_attn_scalar": 24, "tie_word_embeddings": True},
    "gemma3": {
        "num_hidden_layers": 7,
        "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    },
    "smollm3": {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1], "use_sliding_window": False},
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
}
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "smollm3", "olmo2", "granite")


def logits(model: Path) -> torch.Tensor:
    """[LENGTH, vocab] of IDS in one step by our decoder."""
    loaded = load(resolve(str(model)), torch.float32, "cpu")
    pages = tuple(range(1, LENGTH // 8 + 1))
    kv = KVMemory(loaded.spec.kv_layers, pages=len(pages), page_size=8, dtype=torch.float32, device=torch.device("cpu"))
    decoder = Decoder(loaded.spec, loaded.tensors, TorchBackend(kv))
    batch = StepBatch([Hand(1, list(IDS), pages).next_slice(LENGTH)], 8, torch.device("cpu"))
    return decoder.logits(decoder.hidden(batch))


def expected_logits(directory: Path) -> torch.Tensor:
    """The same by transformers."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        return model(torch.tensor([IDS]), use_cache=False).logits[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_computes_what_its_directory_does(tmp_path: Path, family: str) -> None:
    directory = tiny_family(tmp_path / "model", family, **FIXED.get(family, {}))
    found = logits(write_gguf(tmp_path / "model.gguf", directory))
    torch.testing.assert_close(found, expected_logits(directory), atol=1e-4, rtol=0)


def test_olmo3_is_an_olmo2_with_windows(tmp_path: Path) -> None:
    """Every fourth layer sees all positions, and that one alone scales its rope."""
    directory = tiny_other(tmp_path / "model", "olmo3")
    keys = {"olmo2.rope.scaling.original_context_length": 32}
    found = logits(write_gguf(tmp_path / "model.gguf", directory, metadata=keys))
    torch.testing.assert_close(found, expected_logits(directory), atol=1e-4, rtol=0)


def test_a_gemma2_file_that_names_no_window_and_no_caps_has_the_familys(tmp_path: Path) -> None:
    directory = tiny_family(tmp_path / "model", "gemma2", **FIXED["gemma2"], max_position_embeddings=8192)
    names = ("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
    file = write_gguf(tmp_path / "model.gguf", directory, metadata={f"gemma2.{name}": None for name in names})
    spec = read_gguf_spec(read_gguf_header(file))
    assert (spec.attention_softcap, spec.logit_softcap) == (50.0, 30.0)
    assert spec.windows == (4096, 0, 4096)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma2", "gemma3", "phi3"])
def test_transformers_reads_the_same_from_these_files(tmp_path: Path, family: str) -> None:
    """So that this writer's and our reader's ideas of the format are not merely the same mistake."""
    changes = FIXED.get(family, {})
    file = write_gguf(tmp_path / "model.gguf", tiny_family(tmp_path / "model", family, **changes))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path / "model"))
    theirs = load_gguf_checkpoint(file, return_tensors=True, model_to_load=model)["tensors"]
    ours = load(resolve(str(file)), torch.float32, "cpu").tensors
    shift = 1.0 if "gemma" in family else 0.0  # their norms add 1, ours have it in the weight
    for name, tensor in ours.items():
        expected = theirs[name] + shift if "norm" in name else theirs[name]
        torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=0)


def longrope_file(path: Path, **tensors: np.ndarray) -> Path:
    directory = tiny_family(
        path / "model",
        "phi3",
        sliding_window=None,
        original_max_position_embeddings=32,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": SHORT.tolist(),
            "long_factor": LONG.tolist(),
            "original_max_position_embeddings": 32,
        },
    )
    keys = {"phi3.rope.scaling.original_context_length": 32}
    return write_gguf(path / "model.gguf", directory, metadata=keys, tensors=tensors)


SHORT, LONG = np.linspace(1, 1.7, 8, dtype=np.float32), np.linspace(1, 9, 8, dtype=np.float32)


def test_longrope_is_kept_as_factors(tmp_path: Path) -> None:
    tensors = {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG}
    spec = read_gguf_spec(read_gguf_header(longrope_file(tmp_path, **tensors)))
    expected = read_hf_spec(tmp_path / "model").rope
    assert (spec.rope.kind, spec.rope.edge, spec.rope.factor) == ("longrope", 32, expected.factor)
    assert spec.rope.short_factors == pytest.approx(expected.short_factors)
    assert spec.rope.long_factors == pytest.approx(expected.long_factors)


def test_half_of_longrope_is_refused(tmp_path: Path) -> None:
    file = longrope_file(tmp_path, **{"rope_factors_short.weight": SHORT})
    with pytest.raises(ModelError, match=r"needs rope_factors_short.weight and rope_factors_long.weight"):
        read_gguf_spec(read_gguf_header(file))
