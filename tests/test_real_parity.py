"""Greedy tokens of the real model equal transformers' generate in float32: alone, together, in one process and in two.

The rule for "equal" is reference.assert_all_same. CI runs a slice; the whole is marked `full`.
"""

from collections.abc import Iterator
from itertools import product

import pytest
from transformers import LlamaForCausalLM

from fairstep import EngineConfig, SamplingParams
from reference import assert_all_same, greedy, reference_model
from three_engines import Ask, SyncFace, engine_of, join

pytestmark = pytest.mark.real

MODEL = "smollm2"
FLOAT32 = EngineConfig(dtype="float32", kv_memory="512MiB")
OPENINGS = (
    "The capital of France is",
    "def add(a, b):\n    ",
    "Once upon a time there was",
    "1, 2, 3, 4,",
    "Write a poem about",
    "The chemical formula of water is",
    "¿Dónde está",
    "In the year 1969,",
)
ENDINGS = ("", " a", " the old", " not", "\n", " 12345", " because of the long and winding road that", " 🙂")
PROMPTS = [opening + ending for opening, ending in product(OPENINGS, ENDINGS)]

Control = tuple[list[int], list[float]]


@pytest.fixture(scope="module")
def reference() -> Iterator[LlamaForCausalLM]:
    yield reference_model(MODEL)


def asks(prompts: list[str], tokens: int) -> list[Ask]:
    """Staggered: each starts when the first has given so many deltas."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    return [Ask(prompt, params, after_deltas=min(n, tokens) // 2) for n, prompt in enumerate(prompts)]


def check(kind: str, config: EngineConfig, prompts: list[str], tokens: int, controls: list[Control]) -> None:
    with engine_of(kind, MODEL, config) as face:
        together = [join(deltas).token_ids for deltas in face.answer(asks(prompts, tokens))]
    assert_all_same([(own, *control) for own, control in zip(together, controls, strict=True)])


def controls_of(reference: LlamaForCausalLM, prompts: list[str], tokens: int) -> list[Control]:
    from fairstep.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(MODEL)
    return [greedy(reference, tokenizer.encode(prompt), tokens) for prompt in prompts]


def check_alone(prompts: list[str], tokens: int, controls: list[Control]) -> None:
    with SyncFace(MODEL, FLOAT32) as face:
        alone = [join(face.answer([ask])[0]).token_ids for ask in asks(prompts, tokens)]
    assert_all_same([(own, *control) for own, control in zip(alone, controls, strict=True)])


# pages enough for about four of the slice's sequences at their full length
SHORT_OF_PAGES = EngineConfig(dtype="float32", kv_memory=46_080 * 16 * 10, max_seats=8, page_size=16)
CHUNKS_OF_SEVEN = EngineConfig(dtype="float32", deterministic=True, chunk=7, page_size=8)


def test_a_slice_alone_together_and_short_of_pages(reference: LlamaForCausalLM) -> None:
    prompts, tokens = PROMPTS[::4], 32
    controls = controls_of(reference, prompts, tokens)
    check_alone(prompts, tokens, controls)
    check("engine", FLOAT32, prompts, tokens, controls)
    check("process", FLOAT32, prompts, tokens, controls)
    check("engine", SHORT_OF_PAGES, prompts, tokens, controls)
    check("engine", CHUNKS_OF_SEVEN, prompts, tokens, controls)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_sixty_four_prompts_of_sixty_four_tokens(reference: LlamaForCausalLM) -> None:
    controls = controls_of(reference, PROMPTS, 64)
    check_alone(PROMPTS, 64, controls)
    for kind in ("engine", "thread", "process"):
        check(kind, FLOAT32, PROMPTS, 64, controls)
    for chunk, page_size in ((1, 16), (7, 8), (16, 64), (512, 16)):
        fixed = EngineConfig(
            dtype="float32", deterministic=True, chunk=chunk, page_size=page_size, step_tokens=1024, kv_memory="512MiB"
        )
        check("engine", fixed, PROMPTS, 64, controls)
