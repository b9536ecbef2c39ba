"""Front and step loop joined, under random histories of requests, siblings and cancels on tiny pools: each request ends
once, and what is told of it is whole whatever happened to it on the way."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairstep import Completion, Delta, Engine, SamplingParams
from fairstep.config import EngineConfig
from fairstep.request import Place
from fairstep.stepping.settings import StepSettings
from fairstep.tenants import Tenants, TenantTerms
from fakes_text import TURN, FakeTokenizer
from fakes_worker import FakeRunner, fake_build, letter, said_of

TENANTS = Tenants(
    tenants=(
        TenantTerms("a"),
        TenantTerms("b", weight=3, max_running=1),
        TenantTerms("c", prefix_group="shared"),
        TenantTerms("low", tier=1),
    )
)
STOPS = ((), (), ("cde",), ("<turn>",), ("h", "bcd"))


def any_settings(pick: random.Random) -> StepSettings:
    page_size, context = pick.choice((1, 2, 4)), pick.randint(12, 40)
    seats = pick.randint(1, 4)
    return StepSettings(
        step_tokens=seats + pick.randint(0, 8),
        seats=seats,
        pages=-(-context // page_size) + pick.randint(0, 8),
        page_size=page_size,
        chunk=pick.randint(1, 9),
        context=context,
        prefix_cache=pick.random() < 0.5,
        rope_edge=pick.choice((0, pick.randint(1, context))),
        rope_switches=True,
    )


def any_params(pick: random.Random) -> SamplingParams:
    most = pick.choice((None, 0, 1, pick.randint(1, 20)))
    return SamplingParams(
        max_tokens=most,
        min_tokens=pick.choice((0, 0, min(3, most or 0))),
        stop=pick.choice(STOPS),
        include_stop=pick.random() < 0.3,
        logprobs=pick.choice((None, 0, 2)),
        prompt_logprobs=pick.choice((None, None, 1)),
        presence_penalty=pick.choice((0.0, 1.0)),
    )


class HandClock:
    """Time that a history moves on."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


class History:
    """An Engine on a fake runner, and what it has told of each request."""

    def __init__(self, pick: random.Random) -> None:
        self.pick = pick
        self.own = any_settings(pick)
        self.clock = HandClock()
        self.engine = Engine(
            "fake",
            EngineConfig(
                fairness=pick.choice(("drr", "drr", "drr", "vtc-ema", "fcfs")),
                cost_model=pick.choice(("tokens", "requests", "adaptive")),
                quantum=pick.choice((None, 1, 10)),
            ),
            tokenizer=FakeTokenizer(),
            tenants=TENANTS,
            clock=self.clock,
            build_worker=fake_build(FakeRunner(self.draw), self.own),
        )
        self.asked: dict[str, tuple[tuple[int, ...], SamplingParams]] = {}
        self.told: dict[str, list[Delta]] = {}
        self.cancelled: set[str] = set()

    @staticmethod
    def draw(position: int) -> int:
        return TURN if position == 9 else letter(position)

    def run(self, length: int) -> None:
        for _ in range(length):
            self.pick.choice((self.submit, self.step, self.step, self.step, self.cancel))()
        for _ in range(5000):
            if self.engine.has_requests:
                self.step()
        assert not self.engine.has_requests, "somebody waits for ever"
        standings = self.engine._front._seats.room.standings()
        assert not any(each.waiting or each.running or each.queued for each in standings)
        live = self.engine._front.live()
        assert (live.running, live.waiting) == (0, 0)
        for request_id, deltas in self.told.items():
            self.judge(request_id, deltas)

    def submit(self) -> None:
        prompt = tuple(self.pick.choices(range(97, 100), k=self.pick.randint(1, min(9, self.own.context - 2))))
        params = any_params(self.pick)
        params = params if params.max_tokens is None or params.max_tokens < 3 else self._fitting(params, prompt)
        n = self.pick.choice((1, 1, 2, 4))
        stand = Place(tenant=self.pick.choice(("a", "a", "a", "b", "c", "low")), priority=self.pick.choice((0, 0, 1)))
        if self.pick.random() < 0.1:
            name = self.pick.choice(("deadline", "ttft_deadline"))
            stand[name] = self.clock.now() + self.pick.randint(0, 20)  # type: ignore[literal-required]
        for place, request_id in enumerate(self.engine.submit_group(prompt, params, n, **stand)):
            self.asked[request_id] = prompt, params
            self.told[request_id] = []
            if place:
                self.asked[request_id] = prompt, replace(params, prompt_logprobs=None)

    def _fitting(self, params: SamplingParams, prompt: Sequence[int]) -> SamplingParams:
        room = self.own.context - len(prompt)
        most = min(params.max_tokens or room, room)
        return replace(params, max_tokens=most, min_tokens=min(params.min_tokens, most))

    def step(self) -> None:
        self.clock.time += 1
        for delta in self.engine.step():
            if delta.code == "deadline_exceeded":
                self.cancelled.add(delta.request_id)
            assert not any(told.finish_reason for told in self.told[delta.request_id]), "told after its end"
            asked = self.asked[delta.request_id][1].logprobs is not None
            assert len(delta.logprobs) == (len(delta.token_ids) if asked else 0), (
                "log probabilities without their tokens"
            )
            self.told[delta.request_id].append(delta)
        self.engine.check()

    def cancel(self) -> None:
        for request_id in [name for name, deltas in self.told.items() if not deltas or not deltas[-1].finish_reason]:
            if self.pick.random() < 0.15 and self.engine.cancel(request_id):
                self.cancelled.add(request_id)

    def judge(self, request_id: str, deltas: list[Delta]) -> None:
        prompt, params = self.asked[request_id]
        answer = Completion.join(deltas)
        drawn = [self.draw(position) for position in range(self.own.context - len(prompt))]
        assert list(answer.token_ids) == drawn[: len(answer.token_ids)]
        assert answer.usage.completion_tokens == len(answer.token_ids)
        expected = () if params.logprobs is None else [said_of(token, params.logprobs) for token in answer.token_ids]
        assert list(answer.logprobs) == list(expected)
        if params.prompt_logprobs is not None and request_id not in self.cancelled:
            whole = [None, *(said_of(token, params.prompt_logprobs) for token in prompt[1:])]
            assert list(answer.prompt_logprobs) == whole
        if request_id not in self.cancelled:
            self._judge_end(answer, prompt, params, drawn)

    def _judge_end(
        self, answer: Completion, prompt: Sequence[int], params: SamplingParams, drawn: Sequence[int]
    ) -> None:
        """As if the request had been alone."""
        texts = [
            "<turn>" if token == TURN and "<turn>" in params.stop else chr(token) * (token != TURN) for token in drawn
        ]
        most = len(drawn) if params.max_tokens is None else params.max_tokens
        ends = [
            count
            for count in range(max(1, params.min_tokens), most + 1)
            if any(stop in "".join(texts[max(0, params.min_tokens - 1) : count]) for stop in params.stop)
        ]
        assert answer.finish_reason == ("stop" if ends else "length")
        assert len(answer.token_ids) == (ends[0] if ends else most)
        text = "".join(texts[: len(answer.token_ids)])
        if answer.stop_reason and not params.include_stop:
            text = text.removesuffix(str(answer.stop_reason))
        assert answer.text == text


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_each_request_ends_once_and_all_that_is_told_of_it_is_whole(first: int) -> None:
    for seed in range(first, first + 100):
        try:
            History(random.Random(seed)).run(40)
        except Exception as error:
            error.add_note(f"history of seed {seed}")
            raise
