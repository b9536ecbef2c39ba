"""Weights from GGUF files: dequantised as the package does, under Hugging Face's names, in Hugging Face's row order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from fairstep.errors import ModelError
from fairstep.model.gguf_config import read_gguf_spec
from fairstep.model.gguf_file import GgufFile, unpermute
from fairstep.model.gguf_header import GgufHeader, StoredTensor, read_gguf_header
from fairstep.model.spec import ModelSpec
from fairstep.model.tensor_shapes import EMBEDDING, tensor_shapes
from tiny_gguf import permute, write_gguf
from tiny_models import tiny_llama

SPEC = ModelSpec(
    architecture="llama",
    vocab_size=20,
    hidden_size=512,
    intermediate_size=512,
    layers=1,
    heads=4,
    kv_heads=4,
    head_dim=128,
    context=128,
    norm_eps=1e-5,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"), layers=1, hidden=256, vocab=260, heads=4, kv_heads=2)


def load(path: Path, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    header = read_gguf_header(path)
    spec = read_gguf_spec(header)
    file = GgufFile(header, spec)
    file.check(tensor_shapes(spec))
    return file.load(tensor_shapes(spec), dtype, torch.device("cpu"), lambda done: None)


def refused(path: Path, match: str) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@given(heads=st.integers(1, 5), half=st.integers(1, 8), columns=st.integers(0, 3))
def test_the_row_order_is_undone(heads: int, half: int, columns: int) -> None:
    shape = (heads * 2 * half, *([columns] if columns else []))
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert torch.equal(unpermute(torch.from_numpy(permute(values, heads)), heads), torch.from_numpy(values))


@pytest.mark.parametrize(
    "features",
    [{}, {"tied": True}, {"attention_bias": True, "mlp_bias": True}, {"heads": 8, "kv_heads": 2, "head_dim": 32}],
)
def test_unquantised_weights_are_the_original_ones(tmp_path: Path, features: dict[str, Any]) -> None:
    directory = tiny_llama(tmp_path / "model", **features)
    loaded, original = load(write_gguf(tmp_path / "model.gguf", directory)), load_file(directory / "model.safetensors")
    assert set(loaded) == set(original)
    for name, tensor in original.items():
        assert torch.equal(loaded[name], tensor), name


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_what_the_package_dequantises(model: Path, tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    as_kind = GGMLQuantizationType[kind]
    loaded = load(write_gguf(tmp_path / "model.gguf", model, kind=as_kind), dtype)
    for name, tensor in load_file(model / "model.safetensors").items():
        # Quantising works along rows, so the order of rows does not matter to it.
        values = (
            tensor if tensor.dim() == 1 else torch.from_numpy(dequantize(quantize(tensor.numpy(), as_kind), as_kind))
        )
        assert torch.equal(loaded[name], values.to(dtype)), name


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "TQ1_0"])
def test_kinds_with_large_blocks_load_in_pieces(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package writes few of these kinds, so their bytes are random, and small: any two are a finite float16."""
    as_kind = GGMLQuantizationType[kind]
    block, block_bytes = GGML_QUANT_SIZES[as_kind]
    raw = np.random.default_rng(0).integers(0, 0x3C, (20, 512 // block * block_bytes), np.uint8)
    path = tmp_path / "embedding.bin"
    path.write_bytes(b"some head" + raw.tobytes())
    stored = StoredTensor("token_embd.weight", as_kind, (20, 512), len(b"some head"), raw.size)
    monkeypatch.setattr("fairstep.model.gguf_file.PIECE", 2048)
    file = GgufFile(GgufHeader(path, {}, {stored.name: stored}), SPEC)
    loaded = file.load({EMBEDDING: (20, 512)}, torch.float32, torch.device("cpu"), lambda done: None)
    assert np.array_equal(loaded[EMBEDDING].numpy(), dequantize(raw, as_kind))


def test_a_missing_tensor_is_named(model: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", model, without=("blk.0.ffn_up.weight",))
    refused(path, r"model\.gguf: no tensor blk\.0\.ffn_up\.weight")


def test_metadata_that_contradicts_a_tensor_is_named_with_both_shapes(model: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", model, metadata={"llama.feed_forward_length": 500})
    refused(path, r"blk\.0\.ffn_gate\.weight has shape \[512, 256\], the model's config says \[500, 256\]")


def test_a_kind_that_the_package_cannot_dequantise_is_named(model: Path, tmp_path: Path) -> None:
    weights = np.zeros(256, np.int32)
    path = write_gguf(
        tmp_path / "model.gguf", model, without=("output_norm.weight",), tensors={"output_norm.weight": weights}
    )
    refused(path, r"output_norm\.weight is I32, which the gguf package cannot dequantise")


def test_progress_rises_to_one(model: Path, tmp_path: Path) -> None:
    header = read_gguf_header(write_gguf(tmp_path / "model.gguf", model))
    spec = read_gguf_spec(header)
    heard: list[float] = []
    GgufFile(header, spec).load(tensor_shapes(spec), torch.float32, torch.device("cpu"), heard.append)
    assert heard == sorted(heard) and heard[-1] == 1.0 and len(heard) == len(tensor_shapes(spec))
