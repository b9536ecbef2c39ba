"""The step stack computes what transformers computes: logits of tiny models with every feature, and greedy tokens."""

from pathlib import Path
from typing import Any

import pytest

from fairstep.model.building import build_runner
from fairstep.text.tokenizer import Tokenizer, load_tokenizer
from hand_made_plans import Hand, run, step
from loop_drive import Course, Drive
from pairs import Pair, Watched, assert_greedy, assert_logits, config, pages_from, pair_of
from reference import assert_all_same, greedy, reference_model
from tiny_models import tiny_llama

FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"tied": True},
    "one kv head": {"kv_heads": 1},
    "no grouping": {"kv_heads": 4},
    "group of three": {"heads": 6, "kv_heads": 2, "hidden": 96},
    "attention bias": {"attention_bias": True},
    "mlp bias": {"mlp_bias": True, "tied": True},
    "head_dim of its own": {"head_dim": 32},
    "large theta": {"rope": {"rope_type": "default", "rope_theta": 500_000.0}},
    "linear rope": {"rope": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    "llama3 rope": {
        "rope": {
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("plain"), layers=3, kv_heads=2, context=2048)


@pytest.mark.parametrize("feature", FEATURES)
def test_logits_of_each_feature(feature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(tiny_llama(tmp_path, **FEATURES[feature]))
    watched = Watched(pair.runner, monkeypatch)
    hand = Hand(1, pair.prompt(100), pages_from(3, 120, 16))
    run(pair.runner, [hand], 12, most=40)
    assert_logits(pair, watched, hand, 100)


@pytest.mark.parametrize("page_size", [8, 16, 64])
@pytest.mark.parametrize("chunk", [1, 7, 16, 512])
def test_logits_in_chunks(plain: Path, page_size: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(plain, page_size=page_size)
    for length in (1, page_size - 1, page_size, page_size + 1, 75):
        with monkeypatch.context() as patch:
            watched = Watched(pair.runner, patch)
            hand = Hand(1, pair.prompt(length), pages_from(2, length + 10, page_size))
            run(pair.runner, [hand], 10, most=chunk)
            assert_logits(pair, watched, hand, length)


def test_a_long_prompt_in_one_slice_and_in_two(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(plain)
    for most in (600, 512):
        with monkeypatch.context() as patch:
            watched = Watched(pair.runner, patch)
            hand = Hand(1, pair.prompt(600), pages_from(1, 610, 16))
            run(pair.runner, [hand], 3, most=most)
            assert_logits(pair, watched, hand, 600)


@pytest.mark.parametrize("page_size", [8, 16])
def test_sequences_that_join_a_running_batch(plain: Path, page_size: int) -> None:
    pair = pair_of(plain, page_size=page_size)
    lengths = [5, 16, 33, 1, 60]
    hands, first = [], 1
    for seq, length in enumerate(lengths):
        hands.append(Hand(seq, pair.prompt(length, seq), pages_from(first, length + 24, page_size)))
        first += len(hands[-1].pages)
    mixed = 0
    for joined in range(1, len(hands) + 1):  # each joins while those before it decode
        for _ in range(3):
            kinds = {part.decode for part in step(pair.runner, hands[:joined], most=16)}
            mixed += kinds == {True, False}
    run(pair.runner, hands, 24, most=16)
    assert mixed > 3
    answers = []
    for hand, length in zip(hands, lengths, strict=True):
        expected, gaps = greedy(pair.reference, hand.tokens[:length], len(hand.outputs))
        answers.append((hand.outputs, expected, gaps))
    assert_all_same(answers)
    pair.runner.check()


LENGTHS = (5, 16, 33, 1, 60, 90)


@pytest.mark.parametrize("page_size", [8, 16, 64])
@pytest.mark.parametrize("chunk", [1, 7, 16, 512])
def test_the_step_loop_with_deterministic_chunks(plain: Path, page_size: int, chunk: int) -> None:
    pair = pair_of(plain, page_size=page_size, chunk=chunk, deterministic=True, step_tokens=max(32, chunk + 7))
    prompts = [pair.prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    course = Drive(pair.runner, pair.settings).answer(prompts, 12, stagger=2)
    assert any({part.decode for part in plan.slices} == {True, False} for plan in course.plans)
    assert_greedy(pair, prompts, course, 12)


@pytest.mark.parametrize("stagger", [0, 1, 3])
def test_the_step_loop_with_chunks_of_its_choice(plain: Path, stagger: int) -> None:
    pair = pair_of(plain, step_tokens=64)
    prompts = [pair.prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    assert_greedy(pair, prompts, Drive(pair.runner, pair.settings).answer(prompts, 20, stagger=stagger), 20)


@pytest.mark.parametrize("page_size", [8, 16, 64])
def test_a_prefix_hit_answers_as_a_miss(plain: Path, page_size: int) -> None:
    pair = pair_of(plain, page_size=page_size)
    shared = pair.prompt(130)
    prompts = [shared + pair.prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    drive = Drive(pair.runner, pair.settings)
    misses = Drive(pair.runner, pair.settings, prefix_cache=False).answer(prompts, 12)
    drive.answer([shared], 2)
    hits = drive.answer(prompts, 12)
    assert misses.cached == 0
    assert hits.cached == len(prompts) * (130 // page_size) * page_size
    assert_greedy(pair, prompts, hits, 12)
    assert_greedy(pair, prompts, misses, 12)


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_preempted_sequence_answers_as_an_undisturbed_one(plain: Path, prefix_cache: bool) -> None:
    pair = pair_of(plain, page_size=8)
    prompts = [pair.prompt(length, seed) for seed, length in enumerate((20, 30, 25, 40))]
    drive = Drive(pair.runner, pair.settings, pages=20, prefix_cache=prefix_cache)  # they need 34 in the end
    course = drive.answer(prompts, 40)
    assert course.preemptions > 0
    assert_greedy(pair, prompts, course, 40)


PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time, in a small village by the sea,",
    "Water boils at",
)
OPENINGS = (
    "Tell me about",
    "Why do people like",
    "Write a poem on",
    "Three facts on",
    "List words for",
    "The history of",
    "In a letter on",
    "Explain simply:",
)
SUBJECTS = ("the sea", "a red house", "prime numbers", "bread", "the moon", "old maps", "rain", "music")


def real_pair(**changes: Any) -> tuple[Pair, Tokenizer]:
    settings = config(kv_memory="512MiB", threads=2, **changes)
    runner, steps, ready = build_runner("smollm2", settings, lambda what, part: None)
    return Pair(runner, steps, reference_model("smollm2"), ready.vocab_size), load_tokenizer("smollm2")


@pytest.mark.real
def test_the_real_model_answers_as_transformers() -> None:
    pair, tokenizer = real_pair()
    prompts = [tokenizer.encode(text) for text in PROMPTS]
    assert_greedy(pair, prompts, Drive(pair.runner, pair.settings).answer(prompts, 16), 16)


@pytest.mark.real
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_real_model_answers_64_prompts_as_transformers() -> None:
    pair, tokenizer = real_pair(max_seats=64)
    prompts = [tokenizer.encode(f"{opening} {subject}") for opening in OPENINGS for subject in SUBJECTS]
    course = Drive(pair.runner, pair.settings).answer(prompts, 64)
    assert_greedy(pair, prompts, course, 64)
    alone = Drive(pair.runner, pair.settings, prefix_cache=False)
    one_by_one = [alone.answer([prompt], 64).outputs[0] for prompt in prompts]
    assert_greedy(pair, prompts, Course(one_by_one), 64)
