"""The runner: plans of every kind in, one token a sampling slice out, and no sequence disturbs another."""

from pathlib import Path

import pytest
import torch

from fairstep.config import EngineConfig, Machine
from fairstep.door import Ready, Sampling
from fairstep.errors import ConfigError
from fairstep.model.building import build_runner
from fairstep.model.runner import TorchRunner
from fairstep.stepping.plan import NOT_FINITE, StepPlan
from fairstep.stepping.settings import StepSettings
from hand_made_plans import Hand, run, step
from tiny_models import tiny_llama

BROKEN = 319  # a token whose embedding is made NaN
PAGE = 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


def build(model: Path, **changes: object) -> tuple[TorchRunner, StepSettings, Ready]:
    values: dict[str, object] = {"dtype": "float32", "kv_memory": "2MiB", "max_seats": 8, "threads": 1, **changes}
    config = EngineConfig(**values).resolved(Machine())  # type: ignore[arg-type]
    return build_runner(str(model), config, lambda what, part: None)


@pytest.fixture
def runner(model: Path) -> TorchRunner:
    return build(model)[0]


def hands(lengths: list[int], sampling: Sampling | None = None) -> list[Hand]:
    made = []
    for seq, length in enumerate(lengths):
        pages = tuple(range(1 + seq * 5, 6 + seq * 5))
        made.append(Hand(seq, [(7 * i + seq) % 300 for i in range(length)], pages))
        if sampling is not None:
            made[-1].sampling = sampling
    return made


def test_prompts_alone_decodes_alone_and_both(runner: TorchRunner) -> None:
    first, second = hands([20, 30])
    assert [part.samples for part in step(runner, [first], 16)] == [False]
    assert runner.launch(StepPlan(1, (second.next_slice(8),))).result().tokens == ()
    run(runner, [first], 2, 16)
    assert {part.decode for part in step(runner, [first, second], 16)} == {True, False}
    run(runner, [first, second], 8, 16)
    assert {part.decode for part in step(runner, [first, second], 16)} == {True}
    runner.check()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sampled_tokens_do_not_depend_on_the_batch(model: Path, dtype: str) -> None:
    runner, _, _ = build(model, dtype=dtype)
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=5, max_tokens=100)
    alone = hands([9, 33, 17, 1], sampling)
    for hand in alone:
        run(runner, [hand], 12, 16)
    together = hands([9, 33, 17, 1], sampling)
    run(runner, together, 12, 16)
    assert [hand.outputs for hand in together] == [hand.outputs for hand in alone]


def break_token(runner: TorchRunner) -> None:
    runner.decoder.embedding[BROKEN] = float("nan")


def test_a_row_that_is_not_finite_leaves_the_others_alone(runner: TorchRunner) -> None:
    good = hands([20, 5, 40])
    run(runner, good, 6, 16)
    break_token(runner)
    again = hands([20, 5, 40])
    bad = Hand(9, [1, 2, BROKEN, 4], tuple(range(20, 22)))
    parts = (again[0].next_slice(64), bad.next_slice(64), again[1].next_slice(64), again[2].next_slice(64))
    tokens = runner.launch(StepPlan(1, parts)).result().tokens
    assert tokens[1] == NOT_FINITE
    assert [tokens[0], tokens[2], tokens[3]] == [hand.outputs[0] for hand in good]


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_pages_that_held_values_not_finite_can_be_used_again(runner: TorchRunner, chunk: int) -> None:
    good = hands([20])
    run(runner, good, 30, chunk)
    break_token(runner)
    bad = Hand(9, [BROKEN] * 79, good[0].pages)
    step(runner, [bad], 79)
    assert runner.kv.data[:, :, list(bad.pages)].isnan().any()
    again = hands([20])
    run(runner, again, 30, chunk)
    assert again[0].outputs == good[0].outputs


def test_warming_up_leaves_no_trace(model: Path) -> None:
    runner, _, _ = build(model)
    assert not runner.kv.data.any()
    runner.check()


def test_settings_and_ready_say_what_was_built(model: Path) -> None:
    _, settings, ready = build(model, inter_token_target_ms=50, chunk=32, deterministic=True, max_model_len=100)
    assert settings.inter_token_target == 0.05
    assert (settings.seats, settings.chunk, settings.deterministic, settings.page_size) == (8, 32, True, PAGE)
    assert (
        (ready.pages, ready.context)
        == (settings.pages, settings.context)
        == (2 * 1024**2 // (2 * 2 * 2 * 16 * 4 * PAGE), 100)
    )
    assert (ready.vocab_size, ready.dtype, ready.device, ready.eos_ids) == (320, "float32", "cpu", (1,))
    assert ready.parameters == sum(p.numel() for p in _parameters(model))
    assert set(ready.seconds) == {"config", "weights", "decoder", "warm up"}
    assert ready.notes == ()


def _parameters(model: Path) -> list[torch.Tensor]:
    from transformers import LlamaForCausalLM

    return list(LlamaForCausalLM.from_pretrained(model).parameters())


def test_the_target_is_none_when_automatic(model: Path) -> None:
    assert build(model)[1].inter_token_target is None


def test_a_pool_smaller_than_the_context_limits_it_and_says_so(model: Path) -> None:
    _, settings, ready = build(model, kv_memory=16 * 2 * 2 * 2 * 16 * 4 * PAGE)
    assert settings.context == ready.context == 16 * PAGE
    assert ready.notes == ("the KV pool holds 256 tokens, so the context is 256 instead of 512: raise kv_memory",)


def test_asking_for_more_than_the_models_context_is_told(model: Path) -> None:
    _, settings, ready = build(model, max_model_len=9999)
    assert settings.context == 512
    assert "max_model_len is 9999" in ready.notes[0]


def test_a_pool_with_less_than_a_page_a_seat_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="set kv_memory to"):
        build(model, kv_memory=1000)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_formats_run(model: Path, dtype: str) -> None:
    runner, _, ready = build(model, dtype=dtype)
    made = hands([20, 3])
    run(runner, made, 4, 16)
    assert ready.dtype == dtype
    assert all(0 <= token < ready.vocab_size for hand in made for token in hand.outputs)
