"""feedback.py: what a seat drew is the next step's input; a model that computes at once answers the same ahead."""

from pathlib import Path

import pytest

from fairstep.clock import ManualClock
from fairstep.config import EngineConfig, Machine
from fairstep.door import Admit, Orders, Sampling
from fairstep.errors import ConfigError
from fairstep.model.building import build_runner, steps_ahead
from fairstep.model.feedback import Feedback
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import AWAITED, NOT_FINITE, Slice
from fairstep.worker import Worker
from tiny_models import tiny_llama


def awaiting(seat: int, known: tuple[int, ...] = ()) -> Slice:
    return Slice(seat + 1, 1, 5, (AWAITED,), (1,), True, 3, Sampling(), True, known, 2, seat=seat, awaits=True)


def test_each_seat_is_fed_its_own_token_also_at_the_end_of_what_it_knows() -> None:
    feedback = Feedback()
    feedback.keep([awaiting(3), awaiting(1)], [30, 10])
    plain, whole = feedback.fed((awaiting(1), awaiting(3, known=(7, 8))))
    assert (plain.tokens, plain.known, plain.awaits) == ((10,), (), False)
    assert (whole.tokens, whole.known) == ((30,), (7, 8, 30))


def test_what_awaits_nothing_is_left_as_it_is_and_what_was_not_finite_is_any_token() -> None:
    feedback = Feedback()
    feedback.keep([awaiting(0)], [NOT_FINITE])
    known = Slice(1, 1, 0, (4, 5), (1,), True, 0, Sampling(), False)
    assert feedback.fed((known, awaiting(0)))[0] is known
    assert feedback.fed((awaiting(0),))[0].tokens == (0,)


SAMPLINGS = (
    Sampling(max_tokens=9),
    Sampling(max_tokens=12, temperature=1.0, seed=5, logprobs=2),
    Sampling(max_tokens=7, temperature=0.8, top_p=0.9, seed=6, repetition=1.3, presence=0.5),
    Sampling(max_tokens=10, temperature=1.2, top_k=20, seed=7, bad_words=((3, 4), (9,)), min_tokens=3, stop_ids=(1, 2)),
)


def answers(model: Path, overlap: str) -> tuple[list[list[int]], int]:
    """Tokens by sequence, and how many slices awaited one."""
    config = EngineConfig(dtype="float32", kv_memory="2MiB", max_seats=8, threads=1, overlap=overlap)  # type: ignore[arg-type]
    runner, settings, _ = build_runner(str(model), config.resolved(Machine()), lambda what, part: None)
    worker = Worker(StepLoop(settings, StepModel()), runner, ManualClock())
    prompts = [[(7 * i + seq) % 300 for i in range(9 + 7 * seq)] for seq in range(8)]
    worker.apply(Orders(1, admit=tuple(Admit(s, 1, tuple(p), len(p), SAMPLINGS[s % 4]) for s, p in enumerate(prompts))))
    told: list[list[int]] = [[] for _ in prompts]
    awaited = 0
    launch = runner.launch

    def counting(plan):  # type: ignore[no-untyped-def]
        nonlocal awaited
        awaited += sum(piece.awaits for piece in plan.slices)
        return launch(plan)

    runner.launch = counting  # type: ignore[method-assign]
    while worker.has_work:
        for result in worker.step().results:
            assert result.outcome != "error", result.error
            told[result.seq] += result.tokens
        worker.check()
    return told, awaited


def test_a_model_answers_the_same_when_steps_are_planned_ahead(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path)
    plain, none_awaited = answers(model, "off")
    ahead, awaited = answers(model, "on")
    assert plain == ahead and none_awaited == 0 and awaited > 40


def test_steps_are_planned_ahead_where_that_is_asked_for_or_where_it_helps() -> None:
    def of(overlap: str, batching: str, *, overlaps: bool) -> int:
        return steps_ahead(EngineConfig(overlap=overlap, batching=batching), overlaps=overlaps)

    assert of("auto", "continuous", overlaps=True) == of("on", "continuous", overlaps=False) == 1
    assert of("auto", "continuous", overlaps=False) == of("off", "continuous", overlaps=True) == 0
    assert of("auto", "static", overlaps=True) == of("auto", "padded", overlaps=True) == 0
    with pytest.raises(ConfigError, match="overlap on excludes batching static"):
        EngineConfig(overlap="on", batching="static").resolved(Machine())
