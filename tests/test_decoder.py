"""The decoder on its own: what it takes from a checkpoint and which logits it returns (their values: test_parity)."""

import pytest
import torch

from fairstep.door import Sampling
from fairstep.model.backend import TorchBackend
from fairstep.model.batch import StepBatch
from fairstep.model.decoder import Decoder
from fairstep.model.kv import KVMemory
from fairstep.model.spec import ModelSpec
from fairstep.model.tensor_shapes import tensor_shapes
from fairstep.stepping.plan import Slice

CPU = torch.device("cpu")


def spec(*, tied: bool = False, bias: bool = False) -> ModelSpec:
    return ModelSpec(
        architecture="LlamaForCausalLM",
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        context=128,
        norm_eps=1e-5,
        tied=tied,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=bias,
    )


def random_tensors(model: ModelSpec, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=random).to(dtype) * 0.3 for name, shape in tensor_shapes(model).items()}


def decoder_of(model: ModelSpec, dtype: torch.dtype = torch.float32) -> Decoder:
    kv = KVMemory(model.kv_layers, pages=20, page_size=8, dtype=dtype, device=CPU)
    return Decoder(model, random_tensors(model, dtype), TorchBackend(kv))


def batch(*parts: tuple[int, int, bool]) -> StepBatch:
    """Slices (length, first page, samples) of new sequences."""
    slices = [
        Slice(i, 1, 0, tuple(range(n)), (page, page + 1), samples, 0, Sampling(), False)
        for i, (n, page, samples) in enumerate(parts)
    ]
    return StepBatch(slices, 8, CPU)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_building_takes_every_tensor_of_the_checkpoint(tied: bool, bias: bool) -> None:
    model = spec(tied=tied, bias=bias)
    tensors = random_tensors(model, torch.float32)
    kv = KVMemory(model.kv_layers, pages=2, page_size=8, dtype=torch.float32, device=CPU)
    Decoder(model, tensors, TorchBackend(kv))
    assert tensors == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_float32_and_only_of_sampling_slices(dtype: torch.dtype) -> None:
    decoder = decoder_of(spec(), dtype)
    logits = decoder.forward(batch((5, 1, True), (9, 3, False), (1, 5, True)))
    assert logits.dtype is torch.float32
    assert logits.shape == (2, 50)
    assert not logits.requires_grad


def test_no_sampling_slice_gives_no_logits() -> None:
    assert decoder_of(spec()).forward(batch((5, 1, False))).shape == (0, 50)


def test_bfloat16_stays_near_float32() -> None:
    wide, narrow = (decoder_of(spec(), dtype).forward(batch((9, 1, True))) for dtype in (torch.float32, torch.bfloat16))
    torch.testing.assert_close(narrow, wide, atol=0.05 * wide.abs().max().item(), rtol=0)
