"""The decoder as one C++ call a step, in every build: near the float32 reference for every family, and a row's result
the same to the last bit whatever is computed beside it."""

import math
from collections.abc import Sequence
from dataclasses import replace as changed
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from cpu_libraries import LEVELS, library
from fairstep.door import Sampling
from fairstep.model.backend import TorchBackend
from fairstep.model.batch import StepBatch
from fairstep.model.computed import CausalModel, computed
from fairstep.model.cpu_decoder import CpuDecoder, cannot_compute
from fairstep.model.decoder import Decoder
from fairstep.model.kv import KVMemory
from fairstep.model.loading import LoadedModel, load
from fairstep.model.sources import resolve
from fairstep.stepping.plan import NOT_FINITE, Slice
from tiny_models import FAMILIES, tiny_family, tiny_llama

CPU = torch.device("cpu")
PAGE = 16
IDS = torch.randint(0, 300, (400,), generator=torch.Generator().manual_seed(0)).tolist()
LLAMAS = {
    "biased": {"attention_bias": True, "mlp_bias": True},
    "tied, three layers": {"tied": True, "layers": 3},
    "one kv head": {"heads": 7, "kv_heads": 1, "head_dim": 32, "hidden": 224},
    "a head for each": {"heads": 4, "kv_heads": 4},
    "vocabulary of whole panels": {"vocab": 352},
    "vocabulary cut off": {"vocab": 333},
    "yarn": {"rope": {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0}},
    "dynamic": {"rope": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}, "context": 64},
}


def rounded(path: Path) -> LoadedModel:
    """A model whose weights are bfloat16 numbers."""
    loaded = load(resolve(str(path)), torch.float32, CPU)
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in loaded.tensors.items()}
    return LoadedModel(loaded.spec, tensors)


def memory(loaded: LoadedModel, dtype: torch.dtype) -> KVMemory:
    return KVMemory(loaded.spec.kv_layers, pages=100, page_size=PAGE, dtype=dtype, device=CPU)


def compiled(loaded: LoadedModel, level: str = LEVELS[0], threads: int = 2) -> CpuDecoder:
    kv = memory(loaded, torch.bfloat16)
    return CpuDecoder(loaded.spec, dict(loaded.tensors), kv, library(level), threads)


def reference(loaded: LoadedModel) -> Decoder:
    tensors = {name: tensor.float() for name, tensor in loaded.tensors.items()}
    return Decoder(loaded.spec, tensors, TorchBackend(memory(loaded, torch.float32)))


def part(seq: int, start: int, end: int) -> Slice:
    """Positions [start, end) of a sequence with ids and pages of its own."""
    pages = tuple(range(1 + 8 * (seq % 12), 9 + 8 * (seq % 12)))
    tokens = tuple(IDS[seq + start : seq + end])
    return Slice(seq, 1, start, tokens, pages, True, 0, Sampling(), end == start + 1)


def batch(*parts: Slice) -> StepBatch:
    return StepBatch(parts, PAGE, CPU)


def logits(model: CausalModel, parts: Sequence[Slice]) -> Tensor:
    """Of every row."""
    return model.logits(model.hidden(batch(*parts)))


def assert_near(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, atol=0.04 * wanted.abs().max().item(), rtol=0)
    assert (got - wanted).pow(2).mean().sqrt() < 0.02 * wanted.pow(2).mean().sqrt()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return rounded(tiny_llama(tmp_path_factory.mktemp("tiny")))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_near_float32(level: str, family: str, tmp_path: Path) -> None:
    loaded = rounded(tiny_family(tmp_path, family, head_dim=16))
    assert cannot_compute(loaded.spec, PAGE, torch.bfloat16) is None
    mine, wide = compiled(loaded, level), reference(loaded)
    for parts in ([part(0, 0, 50), part(1, 0, 3)], [part(0, 50, 51), part(1, 3, 40), part(2, 0, 1)]):
        assert_near(logits(mine, parts), logits(wide, parts))


@pytest.mark.parametrize("kind", LLAMAS)
def test_every_kind_of_llama_is_near_float32(kind: str, tmp_path: Path) -> None:
    loaded = rounded(tiny_llama(tmp_path, **LLAMAS[kind]))
    mine, wide = compiled(loaded), reference(loaded)
    for parts in ([part(0, 0, 60), part(1, 0, 5)], [part(0, 60, 61), part(1, 5, 80)]):
        assert_near(logits(mine, parts), logits(wide, parts))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_rows_result_does_not_depend_on_its_batch(level: str, family: str, tmp_path: Path) -> None:
    loaded = rounded(tiny_family(tmp_path, family, head_dim=16))
    [alone] = [logits(compiled(loaded, level, threads=1), [part(3, 0, 70)])]
    chunked, stepped, crowded = (compiled(loaded, level) for _ in range(3))
    cuts = [0, 1, 14, 33, 64, 70]
    pieces = [logits(chunked, [part(3, start, end)]) for start, end in pairwise(cuts)]
    assert torch.equal(torch.cat(pieces), alone)
    assert torch.equal(torch.cat([logits(stepped, [part(3, n, n + 1)]) for n in range(70)]), alone)
    others = [part(seq, 0, 5 * seq) for seq in range(4, 12)]
    assert torch.equal(logits(crowded, [*others, part(3, 0, 40)])[-40:], alone[:40])
    for n in range(40, 70):
        others = [part(seq, 5 * seq + n - 40, 5 * seq + n - 39) for seq in range(4, 12)]
        assert torch.equal(logits(crowded, [*others[:4], part(3, n, n + 1), *others[4:]])[4], alone[n])


def test_alone_is_as_in_a_batch_of_32(llama: LoadedModel) -> None:
    many = [replace(part(seq, 0, 1 + seq), pages=(1 + 3 * seq, 2 + 3 * seq, 3 + 3 * seq)) for seq in range(32)]
    model, single = compiled(llama), compiled(llama, threads=1)
    together = logits(model, many).split([len(one.tokens) for one in many])
    for one, mine in zip(many, together, strict=True):
        assert torch.equal(logits(single, [one]), mine)
    steps = [replace(one, start=one.end, tokens=(5,)) for one in many]
    together = logits(model, steps)
    assert all(torch.equal(logits(single, [one])[0], mine) for one, mine in zip(steps, together, strict=True))


def test_threads_change_no_bit(llama: LoadedModel) -> None:
    parts = [part(0, 0, 50), part(1, 0, 3)]
    first, *others = (logits(compiled(llama, threads=threads), parts) for threads in (1, 2, 3, 8))
    assert all(torch.equal(first, other) for other in others)


def test_what_is_not_finite_stays_in_its_sequence(llama: LoadedModel) -> None:
    broken = LoadedModel(llama.spec, {name: tensor.clone() for name, tensor in llama.tensors.items()})
    broken.tensors["model.embed_tokens.weight"][319] = torch.nan
    model = compiled(broken)
    alone = logits(model, [part(0, 0, 40)])
    bad = replace(part(1, 0, 40), tokens=(*IDS[:4], 319, *IDS[5:40]))
    rows = logits(model, [bad, part(0, 0, 40)])
    assert rows[4:40].isnan().all() and torch.equal(rows[40:], alone)
    again = replace(part(0, 0, 40), pages=bad.pages)  # pages that held what is not finite
    assert torch.equal(logits(model, [again]), alone)


def test_building_takes_every_tensor_and_no_rows_give_no_logits(llama: LoadedModel) -> None:
    tensors = dict(llama.tensors)
    model = CpuDecoder(llama.spec, tensors, memory(llama, torch.bfloat16), library(LEVELS[0]), 1)
    assert tensors == {}
    assert model.logits(torch.empty(0, llama.spec.hidden_size)).shape == (0, llama.spec.vocab_size)


def test_what_cannot_be_computed_is_told(llama: LoadedModel) -> None:
    def reason(page_size: int = 16, dtype: torch.dtype = torch.bfloat16, **changes: int) -> str | None:
        return cannot_compute(changed(llama.spec, **changes), page_size, dtype)

    assert reason() is None
    assert reason(dtype=torch.float32) == "it computes in bfloat16, not float32"
    assert reason(page_size=24) == "page_size is 24, not a multiple of 16"
    assert reason(head_dim=24) == "heads of 24 are not a multiple of 16 up to 256"
    assert reason(head_dim=512) == "heads of 512 are not a multiple of 16 up to 256"
    assert reason(intermediate_size=100, hidden_size=48) == (
        "hidden_size is 48, intermediate_size is 100: not a multiple of 32"
    )


@pytest.mark.real
def test_the_default_model_is_nearer_to_float32_than_torch_in_bfloat16() -> None:
    loaded = load(resolve("smollm2"), torch.bfloat16, CPU)
    parts = [part(0, 0, 100)]
    wide = logits(reference(loaded), parts).log_softmax(-1)
    torch_model = Decoder(loaded.spec, dict(loaded.tensors), TorchBackend(memory(loaded, torch.bfloat16)))
    rows = {"torch": logits(torch_model, parts), "compiled": logits(compiled(loaded), parts)}
    lost = {name: (wide.exp() * (wide - row.log_softmax(-1))).sum(-1).mean().item() for name, row in rows.items()}
    assert lost["compiled"] < min(1e-3, lost["torch"])


@pytest.mark.parametrize("level", LEVELS)
def test_a_page_is_cleared_when_a_step_begins_it(level: str, llama: LoadedModel) -> None:
    parts = [part(0, 0, 16), part(1, 0, 3)], [part(0, 16, 17), part(1, 3, 20)]  # a page opened by a decode, by a prompt
    clean, memories = compiled(llama, level), memory(llama, torch.bfloat16)
    used = CpuDecoder(llama.spec, dict(llama.tensors), memories, library(level), 2)
    for block in memories.blocks:
        block[:, 1:] = torch.nan
    for step in parts:
        assert torch.equal(logits(used, step), logits(clean, step))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("vocab", [352, 333])
def test_one_call_gives_what_two_do(level: str, vocab: int, tmp_path: Path) -> None:
    loaded = rounded(tiny_llama(tmp_path, vocab=vocab))
    one, two = compiled(loaded, level), compiled(loaded, level)
    for parts in ([part(0, 0, 50), replace(part(1, 0, 30), samples=False), part(2, 0, 3)], [part(0, 50, 51)]):
        got, wanted = one.compute(batch(*parts)), computed(two, batch(*parts))
        assert torch.equal(got.hidden, wanted.hidden)
        assert torch.equal(got.logits, wanted.logits)
        assert list(got.likeliest or ()) == wanted.logits.argmax(-1).tolist()
    silent = [replace(part(3, 0, 9), samples=False)]
    assert len(one.compute(batch(*silent)).logits) == len(computed(two, batch(*silent)).logits) == 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_the_likeliest_of_what_is_not_finite(level: str, broken: float, tmp_path: Path) -> None:
    """One sequence's first token makes its every logit what is broken; the other goes on."""
    loaded = rounded(tiny_llama(tmp_path, tied=False))
    loaded.tensors["model.embed_tokens.weight"][7] = broken
    sick, well = replace(part(0, 0, 3), tokens=(7, 5, 5)), part(1, 0, 5)
    both = compiled(loaded, level).compute(batch(sick, well))
    alone = compiled(loaded, level).compute(batch(well))
    assert list(both.likeliest or ()) == [NOT_FINITE, *(alone.likeliest or ())]


@pytest.mark.parametrize("level", LEVELS)
def test_of_equals_the_lowest_is_the_likeliest(level: str, tmp_path: Path) -> None:
    loaded = rounded(tiny_llama(tmp_path, vocab=333))
    loaded.tensors["lm_head.weight"][:] = 0
    made = compiled(loaded, level).compute(batch(part(0, 0, 3), part(1, 0, 70)))
    assert list(made.likeliest or ()) == [0, 0]
