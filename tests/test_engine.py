"""engine.py: what a caller of the synchronous engine may do wrong, and interrupts. On a fake runner."""

from collections.abc import Callable

import pytest

from fairstep import Engine, SamplingParams
from fairstep.errors import EngineClosed, InvalidRequest
from fairstep.stepping.plan import StepPlan
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build

FIVE = SamplingParams(max_tokens=5)


def engine(runner: FakeRunner | None = None) -> Engine:
    return Engine("fake", tokenizer=FakeTokenizer(), build_worker=fake_build(runner))


def test_answers_come_in_the_order_of_the_prompts() -> None:
    done: list[str] = []
    answers = engine().generate(["x", "y"], [SamplingParams(max_tokens=9), FIVE], on_done=lambda c: done.append(c.text))
    assert [answer.text for answer in answers] == ["abcdefghi", "abcde"]
    assert done == ["abcde", "abcdefghi"], "told as they end"


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="list"):
        engine().generate("abc")


def test_generate_that_fails_half_way_leaves_nothing_running() -> None:
    own = engine()
    with pytest.raises(InvalidRequest, match="empty"):
        own.generate([[97], []], FIVE)
    with pytest.raises(ValueError, match="zip"):
        own.generate(["a", "b"], [FIVE])
    while own.has_requests:
        own.step()
    own.check()
    assert own.generate(["x"], FIVE)[0].text == "abcde"


def interrupting(after: int) -> Callable[[StepPlan], None]:
    steps: list[StepPlan] = []

    def before(plan: StepPlan) -> None:
        steps.append(plan)
        if len(steps) == after:
            raise KeyboardInterrupt

    return before


def test_an_interrupt_leaves_an_engine_that_works() -> None:
    own = engine(FakeRunner(before=interrupting(after=3)))
    with pytest.raises(KeyboardInterrupt):
        own.generate(["x", "y"], FIVE)
    assert own.generate(["z"], FIVE)[0].text == "abcde"
    own.check()


def test_a_closed_engine_tells_what_it_ended_and_refuses_the_rest() -> None:
    own = engine()
    answers = own.generate(["x", "y"], [FIVE, SamplingParams(max_tokens=50)], on_done=lambda c: own.close())
    assert [answer.finish_reason for answer in answers] == ["length", "error"]
    with pytest.raises(EngineClosed):
        own.submit("z")


def test_siblings_have_ids_of_their_own_and_each_may_be_cancelled() -> None:
    own = engine()
    assert own.submit_group([97], FIVE, 3, request_id="r") == ["r", "r.1", "r.2"]
    assert own.cancel("r.1")
    texts: dict[str, str] = {}
    while own.has_requests:
        for delta in own.step():
            texts[delta.request_id] = texts.get(delta.request_id, "") + delta.text
        own.check()
    assert texts == {"r": "abcde", "r.1": "", "r.2": "abcde"}


def test_no_tokens_asked_for_is_told_by_the_next_step() -> None:
    own = engine()
    (answer,) = own.generate(["x"], SamplingParams(max_tokens=0))
    assert (answer.text, answer.finish_reason) == ("", "length")
    assert not own.has_requests
