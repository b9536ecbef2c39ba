"""The runner: plans of every kind in, one token a sampling slice out, and no sequence disturbs another."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import sampling_oracle as oracle
from fairstep.config import EngineConfig, Machine
from fairstep.door import Ready, Sampling, TokenLogprobs
from fairstep.errors import ConfigError
from fairstep.model.batch import StepBatch
from fairstep.model.building import build_runner
from fairstep.model.kv import KVMemory
from fairstep.model.runner import TorchRunner
from fairstep.model.spec import LayerShape
from fairstep.stepping.plan import NOT_FINITE, Slice, StepOutput, StepPlan
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
    runner.model.embedding[BROKEN] = float("nan")


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
    assert runner.kv.layers[0][0][list(bad.pages)].isnan().any()
    again = hands([20])
    run(runner, again, 30, chunk)
    assert again[0].outputs == good[0].outputs


def test_warming_up_leaves_no_trace(model: Path) -> None:
    runner, _, _ = build(model)
    assert not any(part.any() for layer in runner.kv.layers for part in layer)
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


class Table:
    """A model whose logits after a token are that token's row of a table, whatever came before."""

    device = torch.device("cpu")

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self.asked: list[int] = []  # rows of each call for logits

    def hidden(self, batch: StepBatch) -> torch.Tensor:
        return batch.ids[:, None].float()

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        self.asked.append(len(rows))
        return self.table[rows[:, 0].long()].clone()


def table_runner(vocab: int = 50) -> tuple[TorchRunner, Table]:
    model = Table(torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(1)) * 2)
    layers = (LayerShape(1, 2, 2),)
    kv = KVMemory(layers, pages=4, page_size=PAGE, dtype=torch.float32, device=model.device)
    return TorchRunner(model, kv), model


def part(tokens: Sequence[int], *, samples: bool = True, targets: Sequence[int] = (), **sampling: Any) -> Slice:
    asked = Sampling(**sampling)
    known = tuple(tokens) if asked.needs_history else ()
    pages = (0,) * 20
    return Slice(1, 1, 0, tuple(tokens), pages, samples, 0, asked, False, known, len(known), targets=tuple(targets))


def test_nothing_is_reported_where_nobody_asks() -> None:
    runner, model = table_runner()
    output = runner.launch(StepPlan(1, (part([3, 4]), part([5], samples=False), part([6])))).result()
    assert output == StepOutput((int(model.table[4].argmax()), int(model.table[6].argmax())))
    assert model.asked == [2]


def test_a_step_that_draws_nothing_computes_no_logits() -> None:
    runner, model = table_runner()
    assert runner.launch(StepPlan(1, (part([5], samples=False),))).result() == StepOutput(())
    assert model.asked == []


def test_log_probabilities_stand_beside_their_tokens() -> None:
    runner, model = table_runner()
    broken = 9
    model.table[broken, 3] = math.nan
    slices = (part([3], logprobs=2), part([4], samples=False, logprobs=2), part([5]), part([broken], logprobs=2))
    output = runner.launch(StepPlan(1, slices)).result()
    expected = oracle.logprobs(model.table[3].tolist(), output.tokens[0], 2)
    assert output.tokens[2] == NOT_FINITE
    assert output.logprobs[1:] == (None, None)
    assert output.logprobs[0] is not None and output.logprobs[0].ids == expected.ids
    assert output.prompt_logprobs == ()


def test_the_tokens_so_far_are_heard() -> None:
    runner, model = table_runner()
    likeliest = int(model.table[3].argmax())
    asked = part([likeliest, 3], bad_words=((likeliest,),))
    assert runner.launch(StepPlan(1, (asked,))).result().tokens != (likeliest,)
    penalized = part([likeliest, 3], repetition=100.0)
    assert runner.launch(StepPlan(1, (penalized,))).result().tokens != (likeliest,)


def test_prompt_log_probabilities_keep_to_their_slices_and_to_small_blocks() -> None:
    runner, model = table_runner()
    long = [n % 50 for n in range(150)]
    slices = (
        part([7], samples=True),
        part(long, targets=long[1:], prompt_logprobs=1),
        part([8, 9, 10], targets=[9, 10, 11], samples=False, prompt_logprobs=0),
        part([12], prompt_logprobs=3),
    )
    output = runner.launch(StepPlan(1, slices)).result()
    assert model.asked == [3, 64, 64, 24]
    assert [len(each) for each in output.prompt_logprobs] == [0, 149, 3, 0]
    for place, count in ((1, 1), (2, 0)):
        for n, told in enumerate(output.prompt_logprobs[place]):
            token, target = slices[place].tokens[n], slices[place].targets[n]
            expected = oracle.logprobs(model.table[token].tolist(), target, count)
            assert (told.ids, told.rank) == (expected.ids, expected.rank)
            assert told.values == pytest.approx(expected.values, abs=1e-6)


@pytest.mark.parametrize("chunk", [5, 16, 100])
def test_log_probabilities_of_a_prompt_are_those_of_transformers(model: Path, chunk: int) -> None:
    from transformers import LlamaForCausalLM

    runner, _, _ = build(model)
    tokens = [(13 * n + 5) % 300 for n in range(90)]
    told: list[TokenLogprobs] = []
    for start in range(0, len(tokens), chunk):
        given, after = tuple(tokens[start : start + chunk]), tuple(tokens[start + 1 : start + chunk + 1])
        asked = Slice(
            1,
            1,
            start,
            given,
            tuple(range(1, 7)),
            start + chunk >= 90,
            0,
            Sampling(prompt_logprobs=4),
            False,
            targets=after,
        )
        told += runner.launch(StepPlan(1, (asked,))).result().prompt_logprobs[0]
    with torch.inference_mode():
        logits = LlamaForCausalLM.from_pretrained(model).eval()(torch.tensor([tokens])).logits[0]
    wanted = logits.double().log_softmax(dim=-1)
    assert [each.ids[0] for each in told] == tokens[1:]
    for place, each in enumerate(told):
        assert each.values == pytest.approx(wanted[place, list(each.ids)].tolist(), abs=1e-4)
        assert each.values[1:] == pytest.approx(wanted[place].topk(4).values.tolist(), abs=1e-4)
