"""The fused forward pass, interpreted, beside the torch decoder: every family, over pages that are NaN where nothing
was written, with rows that fill up, and without ever asking for a number."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairstep.door import Sampling
from fairstep.kernels.step_inputs import SKIP, StepTensors
from fairstep.model.backend import TorchBackend
from fairstep.model.batch import StepBatch
from fairstep.model.decoder import Decoder
from fairstep.model.fused_decoder import FusedDecoder
from fairstep.model.kv import KVMemory
from fairstep.model.loading import LoadedModel, load
from fairstep.model.sources import resolve
from fairstep.model.triton_backend import TritonBackend, step_tensors
from fairstep.stepping.plan import Slice
from tiny_models import FAMILIES, tiny_family, tiny_llama

CPU = torch.device("cpu")
PAGE, LONGEST = 8, 64
IDS = torch.randint(0, 300, (400,), generator=torch.Generator().manual_seed(0)).tolist()
FEATURES: dict[str, dict[str, Any]] = {
    "biased, tied": {"attention_bias": True, "mlp_bias": True, "tied": True},
    "one kv head of three": {"heads": 3, "kv_heads": 1, "head_dim": 24, "hidden": 96},
    "dynamic rope": {"rope": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}, "context": 16},
}
WAITING = {"_local_scalar_dense", "nonzero", "_unique2", "unique_consecutive", "equal", "is_nonzero", "masked_select"}


def memory(loaded: LoadedModel, dtype: torch.dtype, *, poisoned: bool = False) -> KVMemory:
    kv = KVMemory(loaded.spec.kv_layers, pages=32, page_size=PAGE, dtype=dtype, device=CPU)
    for block in kv.blocks if poisoned else ():
        block.fill_(float("nan"))
    return kv


def fused(loaded: LoadedModel) -> FusedDecoder:
    """Over poisoned pages."""
    dtype = next(iter(loaded.tensors.values())).dtype
    backend = TritonBackend(memory(loaded, dtype, poisoned=True), sequences=4, longest=LONGEST)
    return FusedDecoder(loaded.spec, dict(loaded.tensors), backend)


def plain(loaded: LoadedModel) -> Decoder:
    """In float32."""
    tensors = {name: tensor.float() for name, tensor in loaded.tensors.items()}
    return Decoder(loaded.spec, tensors, TorchBackend(memory(loaded, torch.float32)))


def loaded_from(path: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load(resolve(str(path)), dtype, CPU)


def batch(*parts: tuple[int, int, int]) -> StepBatch:
    """Positions [start, end) of some sequences, each with ids and pages of its own."""
    return StepBatch(
        [
            Slice(
                seq=seq,
                attempt=1,
                start=start,
                tokens=tuple(IDS[40 * seq + start : 40 * seq + end]),
                pages=tuple(range(8 + 8 * seq, 8 * seq, -1)),
                samples=True,
                position=0,
                sampling=Sampling(),
                decode=end == start + 1,
            )
            for seq, start, end in parts
        ],
        PAGE,
        CPU,
    )


# a prompt; a decode beside one; decodes alone
STEPS = (batch((0, 0, 20)), batch((0, 20, 21), (1, 0, 9)), batch((0, 21, 22), (1, 9, 10)))


def check(loaded: LoadedModel, tolerance: float) -> None:
    mine, wide = fused(loaded), plain(loaded)
    for step in STEPS[:2]:
        got, wanted = mine.logits(mine.hidden(step)), wide.logits(wide.hidden(step))
        assert got.dtype is torch.float32
        torch.testing.assert_close(got, wanted, atol=tolerance * wanted.abs().max().item(), rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_the_torch_decoders(family: str, tmp_path: Path) -> None:
    check(loaded_from(tiny_family(tmp_path, family)), 1e-5)


@pytest.mark.parametrize("feature", FEATURES)
def test_every_kind_of_llama_is_the_torch_decoders(feature: str, tmp_path: Path) -> None:
    check(loaded_from(tiny_llama(tmp_path, **FEATURES[feature])), 1e-5)


@pytest.mark.parametrize("rope", ["longrope", "dynamic"])
def test_tables_that_ask_for_no_lengths_are_those_that_do(rope: str, tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0 + n for n in range(8)]} if rope == "longrope" else {}
    changes = {
        "rope_parameters": {"rope_type": rope, "rope_theta": 1e4, "factor": 4.0, **factors},
        "max_position_embeddings": 64 if rope == "longrope" else 16,
        "original_max_position_embeddings": 16,
    }
    loaded = loaded_from(tiny_family(tmp_path, "phi3" if rope == "longrope" else "llama", **changes))
    assert loaded.spec.rope.edge == 16  # which the steps outgrow
    check(loaded, 1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 0.01), (torch.bfloat16, 0.04)])
def test_short_formats_are_near_float32(dtype: torch.dtype, tolerance: float, tmp_path: Path) -> None:
    check(loaded_from(tiny_family(tmp_path, "gemma3"), dtype), tolerance)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return loaded_from(tiny_family(tmp_path_factory.mktemp("tiny"), "qwen3"))


def filled_up(step: StepTensors, rows: int, sequences: int, pages: int) -> StepTensors:
    """With more rows, sequences and pages a sequence, as a recorded step of fixed sizes has them."""

    def longer(part: Tensor, more: int, value: int) -> Tensor:
        return torch.cat((part, part.new_full((more,), value)))

    return step._replace(
        **{name: longer(getattr(step, name), rows, 0) for name in ("ids", "positions")},
        lengths=longer(step.lengths, rows, 1),
        slots=longer(step.slots, rows, SKIP),
        cu_q=longer(step.cu_q, sequences, int(step.cu_q[-1])),
        kv_len=longer(step.kv_len, sequences, 0),
        page_tables=torch.nn.functional.pad(step.page_tables, (0, pages, 0, sequences)),
    )


@pytest.mark.parametrize("number", [1, 2])
def test_what_fills_up_changes_nothing_and_is_finite(llama: LoadedModel, number: int) -> None:
    exact, filling = fused(llama), fused(llama)
    for step in STEPS[: number + 1]:
        wanted = exact.hidden(step)
    for step in STEPS[:number]:
        filling.hidden(step)
    got = filling.step(filled_up(step_tensors(STEPS[number]), 5, 3, 2), only_decodes=number == 2)
    assert torch.equal(got[: len(wanted)], wanted)
    assert got[len(wanted) :].isfinite().all() and len(got) == len(wanted) + 5
    for mine, others in zip(filling.backend.kv.blocks, exact.backend.kv.blocks, strict=True):  # type: ignore[attr-defined]
        torch.testing.assert_close(mine, others, atol=0, rtol=0, equal_nan=True)


def test_decodes_are_computed_the_same_way_beside_prompts_and_alone(llama: LoadedModel) -> None:
    together, alone = fused(llama), fused(llama)
    for model in (together, alone):
        model.hidden(STEPS[0])
    beside = together.hidden(STEPS[1])
    assert torch.equal(beside[:1], alone.hidden(batch((0, 20, 21))))


class NeverWaits(TorchDispatchMode):
    """Fails where torch is asked for a number, or for a shape that depends on one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in WAITING, f"a step asks for a number: {name}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("rope", ["default", "dynamic"])
def test_a_step_asks_for_no_number(rope: str, tmp_path: Path) -> None:
    """Which a recorded launch could not answer."""
    parameters = {"rope_type": rope, "rope_theta": 10_000.0, **({"factor": 4.0} if rope == "dynamic" else {})}
    model = fused(loaded_from(tiny_llama(tmp_path, rope=parameters, context=16)))
    model.hidden(STEPS[0])
    step = step_tensors(STEPS[2])
    with NeverWaits(), torch.inference_mode():
        model.logits(model.step(step, only_decodes=True).index_select(0, step.logit_rows))
    with NeverWaits(), pytest.raises(AssertionError, match="asks for a number"):
        step.ids.max().item()
