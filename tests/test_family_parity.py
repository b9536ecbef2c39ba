"""Every family and every kind of rope, past windows and edges: paged, in chunks, preempted, with prefix hits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairstep import EngineConfig, SamplingParams
from hand_made_plans import Hand, run
from loop_drive import Course, Drive
from pairs import Pair, Watched, assert_greedy, assert_logits, pages_from, pair_of
from three_engines import Ask, engine_of, join
from tiny_models import FAMILIES, tiny_family

EDGE = 64  # from where dynamic and longrope scaling look at the length
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32}


def longrope(pairs: int) -> dict[str, Any]:
    """Phi-3's, with factors for so many pairs of dimensions."""
    return {
        "max_position_embeddings": 256,
        "original_max_position_embeddings": EDGE,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
            "long_factor": [1.0 + 1.5 * i for i in range(pairs)],
            "original_max_position_embeddings": EDGE,
        },
    }


ROPES: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama3": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "yarn": ("qwen2", {"rope_parameters": YARN, "max_position_embeddings": 256}),
    "yarn tuned": (
        "llama",
        {
            "max_position_embeddings": 256,
            "rope_parameters": {
                **YARN,
                "beta_fast": 4.0,
                "beta_slow": 0.5,
                "truncate": False,
                "mscale": 1.0,
                "mscale_all_dim": 0.4,
            },
        },
    ),
    "dynamic": (
        "llama",
        {
            "max_position_embeddings": EDGE,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 8.0},
        },
    ),
    "longrope": ("phi3", longrope(8)),
    "partial": (
        "phi3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
    "partial longrope": ("phi3", {**longrope(6), "partial_rotary_factor": 0.75, "sliding_window": None}),
}
CASES = {**{family: (family, {}) for family in FAMILIES}, **ROPES}


class Models:
    """Tiny models by case, each built once for a page size; what the reference answered is kept."""

    def __init__(self, make: Callable[[str], Path]) -> None:
        self._make = make
        self._paths: dict[str, Path] = {}
        self._pairs: dict[tuple[str, int], Pair] = {}

    def pair(self, case: str, page_size: int = 8) -> Pair:
        if (case, page_size) not in self._pairs:
            other = next((pair for (built, _), pair in self._pairs.items() if built == case), None)
            reference = other.reference if other else None
            pair = pair_of(self.path(case), reference, kv_memory="2MiB", page_size=page_size)
            self._pairs[case, page_size] = replace(pair, answers=other.answers) if other else pair
        return self._pairs[case, page_size]

    def path(self, case: str) -> Path:
        if case not in self._paths:
            family, keys = CASES[case]
            self._paths[case] = tiny_family(self._make(case.replace(" ", "_")), family, **keys)
        return self._paths[case]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp)


@pytest.mark.parametrize(("page_size", "chunk"), [(8, 512), (8, 7), (16, 16), (16, 1)])
@pytest.mark.parametrize("case", CASES)
def test_logits_in_chunks(
    case: str, page_size: int, chunk: int, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = models.pair(case, page_size)
    watched = Watched(pair.runner, monkeypatch)
    hand = Hand(1, pair.prompt(75), pages_from(2, 90, page_size), stretch=75)
    run(pair.runner, [hand], 12, most=chunk)
    assert_logits(pair, watched, hand, 75)


@pytest.mark.parametrize("case", ["dynamic"])
def test_logits_of_a_sequence_that_draws_its_way_past_the_edge(
    case: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = models.pair(case)
    watched = Watched(pair.runner, monkeypatch)
    hand = Hand(1, pair.prompt(EDGE - 5), pages_from(2, 90, 8), stretch=EDGE - 5)
    run(pair.runner, [hand], 12, most=16)
    assert_logits(pair, watched, hand, EDGE - 5)


@pytest.mark.parametrize("case", ["longrope", "partial longrope"])
def test_logits_of_a_sequence_computed_anew_past_the_edge(
    case: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = models.pair(case)
    watched = Watched(pair.runner, monkeypatch)
    hand = Hand(1, pair.prompt(EDGE - 5), pages_from(2, 90, 8))
    run(pair.runner, [hand], 6, most=16)  # the sixth is the first token past the edge
    hand.computed, hand.stretch = 0, len(hand.tokens)
    run(pair.runner, [hand], 12, most=16)
    assert hand.stretch == EDGE + 1
    assert_logits(pair, watched, hand, EDGE - 5)


@pytest.mark.parametrize("case", CASES)
def test_a_prefix_hit_answers_as_a_miss(case: str, models: Models) -> None:
    pair = models.pair(case)
    shared = pair.prompt(40)
    prompts = [shared + pair.prompt(length, seed) for seed, length in enumerate((5, 35, 50))]
    drive = Drive(pair.runner, pair.settings)
    drive.answer([shared], 2)
    first, again = drive.answer(prompts, 6), drive.answer(prompts, 6)
    assert first.cached > 0
    assert again.cached >= sum((len(prompt) - 1) // 8 * 8 for prompt in prompts)  # more where attempts are repeated
    assert_greedy(pair, prompts, first, 6)
    assert_greedy(pair, prompts, again, 6)


@pytest.mark.parametrize("case", CASES)
def test_a_preempted_sequence_answers_as_an_undisturbed_one(case: str, models: Models) -> None:
    pair = models.pair(case)
    prompts = [pair.prompt(length, seed) for seed, length in enumerate((48, 55, 72))]  # past the edge, or soon
    drive = Drive(pair.runner, replace(pair.settings, pages=25))  # they need 28 in the end
    course = drive.answer(prompts, 18)
    assert course.preemptions > 0
    assert_greedy(pair, prompts, course, 18)


@pytest.mark.parametrize("case", ["gemma3", "dynamic", "longrope"])
def test_an_engine_answers_as_transformers(case: str, models: Models) -> None:
    pair = models.pair(case)
    prompts = [pair.prompt(length, seed) for seed, length in enumerate((EDGE - 8, EDGE + 8))]
    asks = [Ask(prompt, SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)) for prompt in prompts]
    settings = EngineConfig(dtype="float32", kv_memory="2MiB", threads=1)
    with engine_of("engine", str(models.path(case)), settings) as engine:
        outputs = [list(join(deltas).token_ids) for deltas in engine.answer(asks)]
    assert_greedy(pair, prompts, Course(outputs), 16)
