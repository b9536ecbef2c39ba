"""Greedy tokens of the real model equal transformers' generate in float32: alone, together, in one process and in two.

The rule for "equal" is reference.assert_all_same. CI runs a slice; the whole is marked `full`.
"""

from itertools import product

import pytest
from transformers import LlamaForCausalLM

from fairstep import EngineConfig, SamplingParams
from fairstep.text.tokenizer import load_tokenizer
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

SLICE, SLICE_TOKENS = PROMPTS[::4], 32
# pages enough for about four of the slice's sequences at their full length
SHORT_OF_PAGES = EngineConfig(dtype="float32", kv_memory=46_080 * 16 * 10, max_seats=8, page_size=16)
CHUNKS_OF_SEVEN = EngineConfig(dtype="float32", deterministic=True, chunk=7, page_size=8)

Control = tuple[list[int], list[float]]


@pytest.fixture(scope="module")
def reference() -> LlamaForCausalLM:
    return reference_model(MODEL)


@pytest.fixture(scope="module")
def slice_controls(reference: LlamaForCausalLM) -> list[Control]:
    return controls_of(reference, SLICE, SLICE_TOKENS)


def asks(prompts: list[str], tokens: int) -> list[Ask]:
    """Staggered: each starts when the first has given so many deltas."""
    return [Ask(prompt, greedily(tokens), after_deltas=min(n, tokens) // 2) for n, prompt in enumerate(prompts)]


def greedily(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)


def controls_of(reference: LlamaForCausalLM, prompts: list[str], tokens: int) -> list[Control]:
    tokenizer = load_tokenizer(MODEL)
    return [greedy(reference, tokenizer.encode(prompt), tokens) for prompt in prompts]


def check_together(kind: str, config: EngineConfig, prompts: list[str], tokens: int, controls: list[Control]) -> None:
    with engine_of(kind, MODEL, config) as face:
        answers = [join(deltas).token_ids for deltas in face.answer(asks(prompts, tokens))]
    assert_all_same([(own, *control) for own, control in zip(answers, controls, strict=True)])


def check_alone(prompts: list[str], tokens: int, controls: list[Control]) -> None:
    with SyncFace(MODEL, FLOAT32) as face:
        answers = [join(face.answer([Ask(prompt, greedily(tokens))])[0]).token_ids for prompt in prompts]
    assert_all_same([(own, *control) for own, control in zip(answers, controls, strict=True)])


@pytest.mark.timeout(900)
def test_a_slice_one_by_one(slice_controls: list[Control]) -> None:
    check_alone(SLICE, SLICE_TOKENS, slice_controls)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        pytest.param("engine", FLOAT32, id="one process"),
        pytest.param("process", FLOAT32, id="two processes"),
        pytest.param("engine", SHORT_OF_PAGES, id="preempted"),
        pytest.param("engine", CHUNKS_OF_SEVEN, id="chunks of 7"),
    ],
)
def test_a_slice_all_together(kind: str, config: EngineConfig, slice_controls: list[Control]) -> None:
    check_together(kind, config, SLICE, SLICE_TOKENS, slice_controls)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_sixty_four_prompts_of_sixty_four_tokens(reference: LlamaForCausalLM) -> None:
    controls = controls_of(reference, PROMPTS, 64)
    check_alone(PROMPTS, 64, controls)
    for kind in ("engine", "thread", "process"):
        check_together(kind, FLOAT32, PROMPTS, 64, controls)
    for chunk, page_size in ((1, 16), (7, 8), (16, 64), (512, 16)):
        fixed = EngineConfig(
            dtype="float32", deterministic=True, chunk=chunk, page_size=page_size, step_tokens=1024, kv_memory="512MiB"
        )
        check_together("engine", fixed, PROMPTS, 64, controls)
