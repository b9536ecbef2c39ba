"""The C++ step with integer weights: near the reference for every family, a row's result its own, and the default model
held by perplexity and by the tokens that it chooses."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from msgspec.structs import replace as changed
from torch import Tensor

from cpu_libraries import LEVELS, library
from fairstep.model.blocks import rounded
from fairstep.model.computed import CausalModel
from fairstep.model.cpu_decoder import CpuDecoder
from fairstep.model.loading import LoadedModel, load
from fairstep.model.product_weights import kind_of
from fairstep.model.sources import resolve
from fairstep.model.tensor_shapes import EMBEDDING, OUTPUT
from fairstep.stepping.plan import Slice
from fairstep.text.tokenizer import load_tokenizer
from test_cpu_decoder import CPU, batch, logits, memory, part, reference
from test_cpu_decoder import rounded as in_bfloat16
from tiny_gguf import write_gguf
from tiny_models import FAMILIES, tiny_family, tiny_llama

TEXT = Path(__file__).parent / "plain_text.txt"
PIECE = 500  # tokens of the text that see one another
PROMPTS, PROMPT, ANSWER = 64, 12, 12


def compiled(loaded: LoadedModel, quantize: str, level: str = LEVELS[0], threads: int = 2) -> CpuDecoder:
    kv = memory(loaded, torch.bfloat16)
    tensors, blocks = dict(loaded.tensors), dict(loaded.blocks)
    return CpuDecoder(loaded.spec, tensors, kv, library(level), threads, blocks, quantize)


def dequantised(loaded: LoadedModel, quantize: str = "auto") -> LoadedModel:
    """The same model with its products' weights as numbers of floating point again, after they were rounded."""
    tensors, blocks = dict(loaded.tensors), dict(loaded.blocks)
    tensors.setdefault(OUTPUT, tensors[EMBEDDING])
    for name in [*blocks, *(name for name in tensors if "_proj.weight" in name or name == OUTPUT)]:
        stored = blocks.pop(name, None)
        kind = kind_of(quantize, {stored.kind if stored else None}, output=name == OUTPUT)
        if stored and stored.kind != kind:
            tensors[name], stored = stored.dequantised(), None
        if kind:
            tensors[name] = (stored or rounded(tensors[name], kind)).dequantised()
    return LoadedModel(replace(loaded.spec, tied=False), tensors)


def assert_near(got: Tensor, wanted: Tensor) -> None:
    assert (got - wanted).pow(2).mean().sqrt() < 0.03 * wanted.pow(2).mean().sqrt()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return in_bfloat16(tiny_llama(tmp_path_factory.mktemp("tiny")))


@pytest.mark.parametrize("quantize", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_near_its_own_dequantised_float32(family: str, quantize: str, tmp_path: Path) -> None:
    loaded = in_bfloat16(tiny_family(tmp_path, family, head_dim=16))
    mine, wide = compiled(loaded, quantize), reference(dequantised(loaded, quantize))
    for parts in ([part(0, 0, 50), part(1, 0, 3)], [part(0, 50, 51), part(1, 3, 40), part(2, 0, 1)]):
        assert_near(logits(mine, parts), logits(wide, parts))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_blocks_of_a_file_are_used_as_they_are(level: str, kind: str, tmp_path: Path) -> None:
    directory = tiny_llama(tmp_path / "model", hidden=128, heads=4, kv_heads=2)
    loaded = kept(write_gguf(tmp_path / "model.gguf", directory, kind=GGMLQuantizationType[kind]))
    assert {blocks.kind for blocks in loaded.blocks.values()} == {kind}
    model = compiled(loaded, "auto", level)
    assert model.weights == kind
    plain = load(resolve(str(tmp_path / "model.gguf")), torch.float32, CPU)
    assert plain.parameters == loaded.parameters
    assert_near(logits(model, [part(0, 0, 60)]), logits(reference(plain), [part(0, 0, 60)]))


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1"])
def test_blocks_of_other_kinds_become_8_bits(kind: str, tmp_path: Path) -> None:
    directory = tiny_llama(tmp_path / "model", hidden=128, heads=4, kv_heads=2)
    loaded = kept(write_gguf(tmp_path / "model.gguf", directory, kind=GGMLQuantizationType[kind]))
    model, wide = compiled(loaded, "auto"), reference(dequantised(loaded))
    assert model.weights == "Q8_0"
    assert_near(logits(model, [part(0, 0, 60)]), logits(wide, [part(0, 0, 60)]))
    plain = load(resolve(str(tmp_path / "model.gguf")), torch.float32, CPU)
    for name, blocks in loaded.blocks.items():
        assert (blocks.dequantised() - plain.tensors[name]).abs().max() < plain.tensors[name].abs().max() / 200


def test_a_tied_embedding_in_blocks_is_looked_up_and_multiplied(tmp_path: Path) -> None:
    directory = tiny_llama(tmp_path / "model", tied=True, hidden=128, heads=4, kv_heads=2)
    loaded = kept(write_gguf(tmp_path / "model.gguf", directory, kind=GGMLQuantizationType.Q8_0))
    assert EMBEDDING in loaded.tensors and OUTPUT in loaded.blocks
    plain = load(resolve(str(tmp_path / "model.gguf")), torch.float32, CPU)
    assert plain.parameters == loaded.parameters
    assert_near(logits(compiled(loaded, "auto"), [part(0, 0, 60)]), logits(reference(plain), [part(0, 0, 60)]))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_file_without_blocks_stays_in_floating_point(kind: str, tmp_path: Path) -> None:
    directory = tiny_llama(tmp_path / "model")
    loaded = kept(write_gguf(tmp_path / "model.gguf", directory, kind=GGMLQuantizationType[kind]))
    assert not loaded.blocks and compiled(loaded, "auto").weights == "bfloat16"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("quantize", ["int8", "int4"])
def test_a_rows_result_does_not_depend_on_its_batch(level: str, quantize: str, llama: LoadedModel) -> None:
    alone = logits(compiled(llama, quantize, level, threads=1), [part(3, 0, 70)])
    chunked, crowded = (compiled(llama, quantize, level) for _ in range(2))
    pieces = [logits(chunked, [part(3, start, end)]) for start, end in pairwise([0, 1, 14, 33, 64, 70])]
    assert torch.equal(torch.cat(pieces), alone)
    others = [part(seq, 0, 5 * seq) for seq in range(4, 12)]
    assert torch.equal(logits(crowded, [*others, part(3, 0, 40)])[-40:], alone[:40])
    for n in range(40, 70):
        others = [part(seq, 5 * seq + n - 40, 5 * seq + n - 39) for seq in range(4, 12)]
        assert torch.equal(logits(crowded, [*others[:4], part(3, n, n + 1), *others[4:]])[4], alone[n])


def test_building_takes_every_tensor_and_every_block(tmp_path: Path) -> None:
    directory = tiny_llama(tmp_path / "model", hidden=128, heads=4, kv_heads=2)
    loaded = kept(write_gguf(tmp_path / "model.gguf", directory, kind=GGMLQuantizationType.Q4_1))
    CpuDecoder(loaded.spec, loaded.tensors, memory(loaded, torch.bfloat16), library(LEVELS[0]), 1, loaded.blocks)
    assert not loaded.tensors and not loaded.blocks


def kept(path: Path) -> LoadedModel:
    return load(resolve(str(path)), torch.bfloat16, CPU, keep_blocks=True)


@pytest.fixture(scope="module")
def ids() -> list[int]:
    return load_tokenizer("smollm2").encode(TEXT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def default_model() -> LoadedModel:
    return load(resolve("smollm2"), torch.bfloat16, CPU, keep_blocks=True)


@pytest.fixture(scope="module")
def wide() -> CausalModel:
    """The file's own weights in float32."""
    return reference(load(resolve("smollm2"), torch.float32, CPU))


@pytest.fixture(scope="module")
def wide_loss(wide: CausalModel, ids: list[int]) -> float:
    return loss(wide, ids)


def slice_of(seq: int, tokens: Sequence[int], start: int, pages: int) -> Slice:
    own = tuple(range(1 + seq * pages, 1 + (seq + 1) * pages))
    return changed(part(seq, 0, 1), start=start, tokens=tuple(tokens), pages=own)


@torch.inference_mode()
def loss(model: CausalModel, ids: list[int]) -> float:
    """Mean -log p of the text's tokens, each after those before it in its piece."""
    total = 0.0
    pieces = [ids[at : at + PIECE] for at in range(0, len(ids), PIECE)]
    for piece in pieces:
        rows = logits(model, [slice_of(0, piece[:-1], 0, 40)])
        total += torch.nn.functional.cross_entropy(rows, torch.tensor(piece[1:]), reduction="sum").item()
    return total / (len(ids) - len(pieces))


@pytest.mark.real
@pytest.mark.parametrize(
    ("quantize", "weights", "most"),
    [("none", "bfloat16", 0.001), ("auto", "Q4_1, output Q8_0", 0.005), ("int8", "Q8_0", 0.005)],
)
def test_perplexity_is_near_that_of_float32(
    quantize: str, weights: str, most: float, default_model: LoadedModel, ids: list[int], wide_loss: float
) -> None:
    model = compiled(default_model, quantize)
    assert model.weights == weights
    difference = loss(model, ids) - wide_loss
    print(f"{quantize}: {100 * difference:+.3f} % of perplexity over {len(ids)} tokens")
    assert abs(torch.tensor(difference).expm1().item()) < most


@pytest.mark.real
@pytest.mark.parametrize(("quantize", "most"), [("none", 0.2), ("auto", 0.3), ("int8", 0.4)])
def test_chosen_tokens_are_float32s_own_or_nearly(
    quantize: str, most: float, default_model: LoadedModel, ids: list[int], wide: CausalModel
) -> None:
    model = compiled(default_model, quantize)
    prompts = [ids[n * len(ids) // PROMPTS :][:PROMPT] for n in range(PROMPTS)]
    lost = torch.cat([margins(model, wide, some) for some in (prompts[: PROMPTS // 2], prompts[PROMPTS // 2 :])])
    share = (lost == 0).float().mean().item()
    print(
        f"{quantize}: {100 * share:.1f} % of {len(lost)} tokens are float32's own, others up to {lost.max():.2f} below"
    )
    assert share > 0.95 and lost.max() < most


@torch.inference_mode()
def margins(model: CausalModel, wide: CausalModel, prompts: list[list[int]]) -> Tensor:
    """How far below its likeliest token `wide` has each token that `model` chose, [prompts * ANSWER]."""
    chosen = answers(model, prompts)
    whole = [[*prompt, *answer[:-1]] for prompt, answer in zip(prompts, chosen, strict=True)]
    hidden = wide.hidden(batch(*(slice_of(seq, tokens, 0, 2) for seq, tokens in enumerate(whole))))
    rows = wide.logits(hidden.view(len(prompts), -1, hidden.shape[1])[:, PROMPT - 1 :].flatten(0, 1))
    return rows.max(-1).values - rows.gather(1, torch.tensor(chosen).view(-1, 1))[:, 0]


@torch.inference_mode()
def answers(model: CausalModel, prompts: list[list[int]]) -> list[list[int]]:
    """The likeliest tokens after each prompt, all prompts together."""
    tokens, chosen, start = prompts, [[] for _ in prompts], 0
    for _ in range(ANSWER):
        step = batch(*(slice_of(seq, new, start, 2) for seq, new in enumerate(tokens)))
        best = model.logits(model.hidden(step).index_select(0, step.logit_rows)).argmax(-1).tolist()
        start += len(tokens[0])
        tokens = [[token] for token in best]
        for answer, token in zip(chosen, best, strict=True):
            answer.append(token)
    return chosen
