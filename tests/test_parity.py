"""The step stack computes what transformers computes: logits of tiny models with every feature, greedy tokens of both."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fairstep.config import EngineConfig, Machine
from fairstep.model.building import build_runner
from fairstep.model.runner import TorchRunner
from hand_made_plans import Hand, run, step
from reference import assert_all_same, greedy, reference_model
from tiny_models import tiny_llama
from torch import Tensor
from transformers import LlamaForCausalLM

LOGITS = 1e-4  # most that a float32 logit may be off

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


@dataclass
class Pair:
    """One model in fairstep and in transformers."""

    runner: TorchRunner
    reference: LlamaForCausalLM
    vocab: int

    def prompt(self, length: int, seed: int = 0) -> list[int]:
        random = torch.Generator().manual_seed(1000 * seed + length)
        return torch.randint(0, self.vocab, (length,), generator=random).tolist()

    def expected_logits(self, tokens: list[int]) -> Tensor:
        with torch.inference_mode():
            return self.reference(torch.tensor([tokens])).logits[0]


def config(**changes: Any) -> EngineConfig:
    values = {"dtype": "float32", "kv_memory": "8MiB", "max_seats": 8, "threads": 1, **changes}
    return EngineConfig(**values).resolved(Machine())


def pair_of(path: Path, **changes: Any) -> Pair:
    runner, _, ready = build_runner(str(path), config(**changes), lambda what, part: None)
    return Pair(runner, LlamaForCausalLM.from_pretrained(path).eval(), ready.vocab_size)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("plain"), layers=3, kv_heads=2, context=2048)


class Watched:
    """Keeps the logits a runner's decoder gives, row by row."""

    def __init__(self, runner: TorchRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[Tensor] = []
        forward: Callable[..., Tensor] = runner.decoder.forward

        def watched(batch: Any) -> Tensor:
            logits = forward(batch)
            self.rows += list(logits)
            return logits

        monkeypatch.setattr(runner.decoder, "forward", watched)


def pages_from(first: int, tokens: int, page_size: int) -> tuple[int, ...]:
    """Pages in falling order, so that a page table is no identity."""
    return tuple(range(first + -(-tokens // page_size) - 1, first - 1, -1))


def assert_logits(pair: Pair, watched: Watched, hand: Hand, prompt: int) -> None:
    """The logits of each output of a sequence, from one pass of the reference over all its tokens."""
    want = pair.expected_logits(hand.tokens)[prompt - 1 : -1]
    torch.testing.assert_close(torch.stack(watched.rows), want, atol=LOGITS, rtol=0)


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


PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time, in a small village by the sea,",
    "Water boils at",
)


def real_pair(changes: dict[str, Any]) -> tuple[Pair, Any]:
    from fairstep.text.tokenizer import load_tokenizer

    runner, _, ready = build_runner("smollm2", config(kv_memory="512MiB", threads=2, **changes), lambda what, part: None)
    return Pair(runner, reference_model("smollm2"), ready.vocab_size), load_tokenizer("smollm2")


def assert_real(pair: Pair, prompts: list[list[int]], count: int) -> None:
    """All together, one joining each step."""
    hands, first = [], 1
    for seq, prompt in enumerate(prompts):
        hands.append(Hand(seq, list(prompt), pages_from(first, len(prompt) + count, 16)))
        first += len(hands[-1].pages)
    for joined in range(1, len(hands)):
        step(pair.runner, [hand for hand in hands[:joined] if len(hand.outputs) < count], most=64)
    run(pair.runner, hands, count, most=64)
    wanted = [greedy(pair.reference, prompt, count) for prompt in prompts]
    assert_all_same([(hand.outputs, *want) for hand, want in zip(hands, wanted, strict=True)])


@pytest.mark.real
def test_the_real_model_answers_as_transformers() -> None:
    pair, tokenizer = real_pair({})
    assert_real(pair, [tokenizer.encode(text) for text in PROMPTS], 16)


@pytest.mark.real
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_real_model_answers_64_prompts_as_transformers() -> None:
    pair, tokenizer = real_pair({"max_seats": 64})
    subjects = ("the sea", "a red house", "prime numbers", "bread", "the moon", "old maps", "rain", "music")
    openings = ("Tell me about", "Why do people like", "Write a poem on", "Three facts on", "List words for", "The history of",
                "In a letter,", "Explain simply:")  # fmt: skip
    texts = [f"{opening} {subject}" for opening in openings for subject in subjects]
    assert_real(pair, [tokenizer.encode(text) for text in texts], 64)
