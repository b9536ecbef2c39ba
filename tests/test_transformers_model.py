"""Architectures through transformers' own code: past windows, in chunks, packed, preempted, with prefix hits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairstep.model.batch import StepBatch
from fairstep.model.building import build_runner
from hand_made_plans import Hand, run, step
from loop_drive import Drive
from pairs import Pair, Watched, assert_greedy, assert_logits, config, pages_from, pair_of
from tiny_models import tiny_llama
from tiny_others import tiny_other

NAMES = ("gpt_neox", "opt", "stablelm", "cohere2", "deepseek_v3", "gpt_oss", "qwen3_moe")
LENGTHS = (5, 16, 33, 1, 60)


class Models:
    """Tiny models by name, each built once."""

    def __init__(self, make: Callable[[str], Path]) -> None:
        self._make = make
        self._built: dict[str, tuple[Path, Pair]] = {}

    def pair(self, name: str, **changes: Any) -> Pair:
        """The runner is new each time, the reference and what it answered are kept."""
        if name not in self._built:
            path = tiny_other(self._make(name), name)
            self._built[name] = path, pair_of(path)
        path, first = self._built[name]
        return replace(pair_of(path, first.reference, **changes), answers=first.answers)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp)


@pytest.mark.parametrize(("page_size", "chunk"), [(8, 512), (8, 7), (16, 16), (16, 1)])
@pytest.mark.parametrize("name", NAMES)
def test_logits_in_chunks(
    name: str, page_size: int, chunk: int, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = models.pair(name, page_size=page_size)
    watched = Watched(pair.runner, monkeypatch)
    hand = Hand(1, pair.prompt(75), pages_from(2, 90, page_size))
    run(pair.runner, [hand], 10, most=chunk)
    assert_logits(pair, watched, hand, 75)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_the_step_loop_with_prompts_that_join_decodes(name: str, chunk: int, models: Models) -> None:
    pair = models.pair(name, chunk=chunk, deterministic=True, step_tokens=32)
    prompts = [pair.prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    course = Drive(pair.runner, pair.settings).answer(prompts, 8, stagger=2)
    assert any({part.decode for part in plan.slices} == {True, False} for plan in course.plans)
    assert_greedy(pair, prompts, course, 8)


@pytest.mark.parametrize("name", NAMES)
def test_a_prefix_hit_answers_as_a_miss(name: str, models: Models) -> None:
    pair = models.pair(name, page_size=8)
    shared = pair.prompt(40)
    prompts = [shared + pair.prompt(length, seed) for seed, length in enumerate((5, 20, 35))]
    drive = Drive(pair.runner, pair.settings)
    drive.answer([shared], 2)
    course = drive.answer(prompts, 6)
    assert course.cached >= 3 * 40
    assert_greedy(pair, prompts, course, 6)


@pytest.mark.parametrize("name", NAMES)
def test_a_preempted_sequence_answers_as_an_undisturbed_one(name: str, models: Models) -> None:
    pair = models.pair(name, page_size=8)
    prompts = [pair.prompt(length, seed) for seed, length in enumerate((20, 30, 25, 40))]
    drive = Drive(pair.runner, replace(pair.settings, pages=18))
    course = drive.answer(prompts, 20)
    assert course.preemptions > 0
    assert_greedy(pair, prompts, course, 20)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_formats_run(dtype: str, models: Models) -> None:
    pair = models.pair("gpt_oss", dtype=dtype)
    hand = Hand(1, pair.prompt(30), pages_from(2, 40, 16))
    run(pair.runner, [hand], 4, most=16)
    assert all(0 <= token < pair.vocab for token in hand.outputs)


def test_models_do_not_mix_up_their_attention(models: Models) -> None:
    pairs = [models.pair(name) for name in ("gpt_neox", "deepseek_v3")]
    hands = [Hand(1, pair.prompt(20), pages_from(2, 40, 16)) for pair in pairs]
    for _ in range(8):
        for pair, hand in zip(pairs, hands, strict=True):
            step(pair.runner, [hand], most=16)
    for pair, hand in zip(pairs, hands, strict=True):
        assert hand.outputs == pair.expected(hand.tokens[:20], len(hand.outputs))[0]


def test_both_paths_give_the_same_logits(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path, tied=True, heads=6, kv_heads=2, hidden=96, layers=3)
    rows = []
    for decoder in ("fairstep", "transformers"):
        runner, _, ready = build_runner(str(path), config(decoder=decoder), lambda what, part: None)
        assert ready.path == decoder
        part = Hand(1, list(range(4, 60)), pages_from(2, 60, 16)).next_slice(56)
        rows.append(runner.model.logits(runner.model.hidden(StepBatch([part], 16, runner.model.device))))
    torch.testing.assert_close(*rows, atol=1e-4, rtol=0)
