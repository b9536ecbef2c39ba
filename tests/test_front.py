"""front.py: each request ends once; stale results are dropped; stop strings end in the front; times are counted."""

from dataclasses import replace
from typing import Any

import pytest

from fairstep.door import Coefficients, Gauges, Headroom, Orders, Report, Result, SliceRecord, StepRecord, TokenLogprobs
from fairstep.errors import ContextTooLong, InvalidRequest
from fairstep.fairness.policies import make_room
from fairstep.front import Front
from fairstep.metrics import Metrics
from fairstep.request import Delta, Request, SamplingParams
from fairstep.tenants import Tenants, TenantTerms
from fakes_text import EOS, TURN, FakeTokenizer
from fakes_worker import ready, said_of, settings

SEATS, PAGES = 4, 64


def front(**changes: int) -> Front:
    return Front(ready(settings(**changes)), FakeTokenizer(), make_room("fcfs"), Metrics(), draw_seed=lambda: 7)


def ask(name: str, prompt: str = "hello", arrival: float = 0.0, priority: int = 0, **params: Any) -> Request:
    return Request(
        id=name,
        prompt_ids=tuple(prompt.encode()),
        params=SamplingParams(**params),
        arrival=arrival,
        priority=priority,
    )


def report(orders: int, *results: Result, room: Headroom | None = None) -> Report:
    return Report(orders, results, room or Headroom(SEATS, PAGES), Gauges(pages_total=PAGES), Coefficients(0, 0, 0, 0))


def said(text: str, seq: int = 1, attempt: int = 1, **rest: Any) -> Result:
    return Result(seq, attempt, tuple(text.encode()), **rest)


def send(f: Front, now: float = 0.0) -> Orders:
    orders = f.orders(now)
    f.check()
    assert orders is not None
    return orders


def take(f: Front, *results: Result, now: float = 0.0, orders: int = 1) -> list[Delta]:
    deltas = f.receive(report(orders, *results), now)
    f.check()
    return deltas


def test_a_request_is_admitted_with_its_tokens_and_limits() -> None:
    f = front()
    f.submit(ask("r", max_tokens=3, stop_token_ids=[5]), now=0.0)
    (admit,) = send(f).admit
    assert (admit.seq, admit.attempt, admit.prompt_len) == (1, 1, 5)
    assert admit.sampling.max_tokens == 3 and admit.sampling.stop_ids == (EOS, 5) and admit.sampling.seed == 7
    assert f.orders(0.0) is None, "nothing new"


def test_the_answer_ends_once_and_usage_counts_it() -> None:
    f = front()
    f.submit(ask("r", max_tokens=2), now=0.0)
    send(f)
    assert take(f, said("a", cached=4)) == [Delta("r", "a", (97,))]
    (last,) = take(f, said("b", outcome="length"))
    assert (last.text, last.finish_reason, f.has_requests) == ("b", "length", False)
    assert last.usage is not None and (last.usage.completion_tokens, last.usage.cached_tokens) == (2, 4)
    assert take(f, said("c")) == [], "a late result revives nothing"
    assert f.orders(0.0) is None, "the worker knows that it ended: no cancel"


def test_a_stop_string_cancels_in_the_worker_and_is_not_shown() -> None:
    f = front()
    f.submit(ask("r", stop=["cd"]), now=0.0)
    send(f)
    take(f, said("b"))
    assert take(f, said("c")) == [], "held back"
    (last,) = take(f, said("d"))
    assert (last.text, last.finish_reason, last.stop_reason) == ("", "stop", "cd")
    assert last.usage is not None and last.usage.completion_tokens == 3
    assert send(f).cancel == ((1, 1),)
    assert take(f, said("e")) == [], "made after it: in no text"


def test_end_of_sequence_is_counted_but_not_shown() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    send(f)
    (last,) = take(f, Result(1, 1, (EOS,), "stop", stop_id=EOS))
    assert (last.text, last.token_ids, last.finish_reason, last.stop_reason) == ("", (EOS,), "stop", None)


def test_a_stop_string_that_is_a_special_token_stops_on_its_id() -> None:
    f = front()
    f.submit(ask("r", stop=["<turn>"], ignore_eos=True), now=0.0)
    assert send(f).admit[0].sampling.stop_ids == (TURN,)
    (last,) = take(f, Result(1, 1, (TURN,), "stop", stop_id=TURN))
    assert (last.text, last.finish_reason, last.stop_reason) == ("", "stop", "<turn>")


@pytest.mark.parametrize("outcome", ["preempted", "yielded"])
def test_a_preempted_request_returns_first_with_its_outputs_and_a_higher_attempt(outcome: Any) -> None:
    f = front(seats=1)
    f.submit(ask("old"), now=0.0)
    f.submit(ask("next"), now=0.0)
    send(f)
    take(f, said("ab"), orders=0)
    f.receive(report(1, Result(1, 1, outcome=outcome), room=Headroom(1, PAGES)), 0.0)
    admits = send(f).admit
    assert admits[0].seq == 1 and admits[0].attempt == 2
    assert admits[0].tokens == tuple(b"helloab") and admits[0].prompt_len == 5
    assert take(f, said("x", attempt=1)) == [], "of the old attempt"
    assert take(f, said("c", attempt=2)) == [Delta("old", "c", (99,))]


def test_a_cancel_before_sending_never_reaches_the_worker() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    delta = f.cancel("r", 1.0)
    assert delta is not None and delta.finish_reason == "cancelled"
    assert f.orders(1.0) is None and f.cancel("r", 1.0) is None


def test_a_cancel_while_running_goes_out_with_the_next_orders() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    send(f)
    f.cancel("r", 1.0)
    assert send(f).cancel == ((1, 1),)
    assert f.live().running == 0 and f.live().waiting == 0


def test_seats_bound_what_is_sent_but_for_two_ahead() -> None:
    f = front(seats=2)
    for n in range(9):
        f.submit(ask(str(n)), now=0.0)
    assert len(send(f).admit) == 4
    f.receive(report(1, room=Headroom(seats=1, pages=PAGES, queued=0)), 0.0)
    assert len(send(f).admit) == 3


def test_a_sooner_priority_overtakes_what_still_waits() -> None:
    f = front(seats=1)
    for name, priority in (("a", 5), ("b", 5), ("c", 5), ("d", 5), ("urgent", 0)):
        f.submit(ask(name, priority=priority), now=0.0)
    assert [admit.seq for admit in send(f).admit] == [5, 1, 2]


def test_an_error_of_its_own_ends_only_that_request() -> None:
    f = front()
    f.submit(ask("bad"), now=0.0)
    f.submit(ask("good"), now=0.0)
    send(f)
    bad, good = take(f, Result(1, 1, outcome="error", error="not finite"), said("a", seq=2))
    assert (bad.finish_reason, bad.error, good.text) == ("error", "not finite", "a")


def test_a_dead_worker_ends_all_with_its_reason() -> None:
    f = front()
    f.submit(ask("a"), now=0.0)
    f.submit(ask("b"), now=0.0)
    send(f)
    deltas = f.fail_all("killed", 3.0)
    assert [(d.finish_reason, d.error) for d in deltas] == [("error", "killed")] * 2
    f.check()


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (ask("r", prompt=""), "prompt"),
        (ask("r", prompt="x" * 200), "prompt"),
        (ask("r", max_tokens=196), "max_tokens"),
        (ask("r", stop_token_ids=[10**6]), "stop_token_ids"),
        (ask("r", allowed_token_ids=[5, 259]), "allowed_token_ids"),
        (ask("r", logit_bias={191222: -100}), "logit_bias"),
        (ask("r", prompt="x" * 200, max_tokens=0), "prompt"),
        (replace(ask("r"), prompt_ids=(-1,)), "prompt"),
    ],
)
def test_what_can_never_be_served_is_refused_at_submit(request_: Request, param: str) -> None:
    f = front()
    with pytest.raises(InvalidRequest) as caught:
        f.submit(request_, now=0.0)
    assert caught.value.param == param and not f.has_requests
    assert isinstance(caught.value, ContextTooLong) == (
        param in ("prompt", "max_tokens") and len(request_.prompt_ids) > 1
    )
    f.check()


def test_what_a_caller_asks_of_the_draw_crosses_the_door() -> None:
    f = front()
    asked = ask(
        "r",
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={5: -100},
        allowed_token_ids=[5, 6],
        bad_words=["ab", "c"],
        logprobs=3,
        prompt_logprobs=0,
    )
    f.submit(asked, now=0.0)
    sampling = send(f).admit[0].sampling
    assert (sampling.repetition, sampling.presence, sampling.frequency) == (1.5, 0.5, -0.5)
    assert (sampling.bias, sampling.allowed) == (((5, -100.0),), (5, 6))
    assert sampling.bad_words == ((97, 98), (99,)) and (sampling.logprobs, sampling.prompt_logprobs) == (3, 0)


def test_what_a_caller_does_not_ask_is_off() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    sampling = send(f).admit[0].sampling
    assert not sampling.needs_history and not sampling.bias and not sampling.allowed
    assert (sampling.logprobs, sampling.prompt_logprobs) == (-1, -1)


def logs(text: str) -> tuple[TokenLogprobs, ...]:
    return tuple(said_of(token, 0) for token in text.encode())


def test_log_probabilities_leave_with_their_tokens() -> None:
    f = front()
    f.submit(ask("r", stop=["bc"], logprobs=0), now=0.0)
    send(f)
    assert take(f, said("ab", logprobs=logs("ab"))) == [Delta("r", "a", (97,), logprobs=logs("a"))]
    assert take(f, said("b", logprobs=logs("b"))) == [Delta("r", "b", (98,), logprobs=logs("b"))]
    (last,) = take(f, said("cd", logprobs=logs("cd")))
    assert (last.text, last.token_ids, last.logprobs) == ("", (98, 99), logs("bc")), "d came after the stop string"
    assert last.usage is not None and last.usage.completion_tokens == 4


def test_log_probabilities_that_are_held_come_with_a_cancel() -> None:
    f = front()
    f.submit(ask("r", stop=["bc"], logprobs=0), now=0.0)
    send(f)
    take(f, said("b", logprobs=logs("b")))
    delta = f.cancel("r", 1.0)
    assert delta is not None and (delta.text, delta.logprobs) == ("b", logs("b"))


def test_prompt_log_probabilities_come_once_and_whole_beginning_with_none() -> None:
    f = front()
    f.submit(ask("r", prompt_logprobs=0, stop=["a"]), now=0.0)
    send(f)
    assert take(f, Result(1, 1, prompt_logprobs=logs("el"), computed=3)) == []
    whole = (None, *logs("ello"))
    (first,) = take(f, Result(1, 1, prompt_logprobs=logs("lo"), prompt_from=3))
    assert first == Delta("r", prompt_logprobs=whole)
    (last,) = take(f, said("a"))
    assert last.prompt_logprobs == () and last.finish_reason == "stop"


def test_a_later_attempt_tells_prompt_log_probabilities_again_and_only_new_ones_count() -> None:
    f = front(seats=1)
    f.submit(ask("r", prompt_logprobs=0), now=0.0)
    assert send(f).admit[0].sampling.prompt_logprobs == 0
    take(f, Result(1, 1, prompt_logprobs=logs("el"), computed=3))
    f.receive(report(1, Result(1, 1, outcome="preempted")), 0.0)
    assert send(f).admit[0].sampling.prompt_logprobs == 0, "some are missing"
    take(f, Result(1, 2, prompt_logprobs=logs("e")), orders=2)
    (delta,) = take(f, said("x", attempt=2, prompt_logprobs=logs("llo"), prompt_from=2), orders=2)
    assert delta.prompt_logprobs == (None, *logs("ello"))
    f.receive(report(2, Result(1, 2, outcome="preempted")), 0.0)
    assert send(f).admit[0].sampling.prompt_logprobs == -1, "all have come"


def test_a_cancel_before_the_prompt_is_computed_tells_none_of_its_log_probabilities() -> None:
    f = front()
    f.submit(ask("r", prompt_logprobs=0), now=0.0)
    send(f)
    take(f, Result(1, 1, prompt_logprobs=logs("el")))
    delta = f.cancel("r", 1.0)
    assert delta is not None and delta.prompt_logprobs == ()


def test_no_tokens_asked_for_ends_at_once_without_the_worker() -> None:
    f = front()
    (delta,) = f.submit(ask("r", max_tokens=0), now=2.0)
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("", (), "length")
    assert delta.usage is not None and (delta.usage.prompt_tokens, delta.usage.completion_tokens) == (5, 0)
    assert not f.has_requests and f.orders(2.0) is None
    f.check()


def test_no_tokens_asked_for_but_log_probabilities_of_the_prompt_go_to_the_worker() -> None:
    f = front()
    assert f.submit(ask("r", max_tokens=0, prompt_logprobs=0), now=0.0) == []
    assert send(f).admit[0].sampling.max_tokens == 0
    (delta,) = take(f, Result(1, 1, outcome="length", prompt_logprobs=logs("ello")))
    assert (delta.finish_reason, delta.token_ids, delta.prompt_logprobs) == ("length", (), (None, *logs("ello")))


def test_special_tokens_are_shown_where_asked() -> None:
    f = front()
    f.submit(ask("r", skip_special_tokens=False), now=0.0)
    f.submit(ask("s"), now=0.0)
    send(f)
    shown, hidden = take(f, Result(1, 1, (TURN,)), Result(2, 1, (TURN,)))
    assert (shown.text, hidden.text) == ("<turn>", "")


def test_a_stop_string_stays_where_asked_also_one_that_is_a_special_token() -> None:
    f = front()
    f.submit(ask("r", stop=["cd"], include_stop=True), now=0.0)
    f.submit(ask("s", stop=["<turn>"], include_stop=True), now=0.0)
    send(f)
    plain, special = take(f, said("bcde"), Result(2, 1, (98, TURN), "stop", stop_id=TURN))
    assert (plain.text, plain.token_ids, plain.stop_reason) == ("bcd", tuple(b"bcd"), "cd")
    assert (special.text, special.token_ids, special.stop_reason) == ("b<turn>", (98, TURN), "<turn>")
    assert send(f).cancel == ((1, 1),), "the worker knows of the other"


def group(f: Front, n: int = 3, **params: Any) -> list[Delta]:
    return f.submit(*ask("r", **params).siblings(n), now=0.0)


def test_siblings_wait_for_their_leaders_first_token_and_share_its_group() -> None:
    f = front()
    group(f)
    f.submit(ask("later"), now=0.0)
    assert [(admit.seq, admit.group) for admit in send(f).admit] == [(1, 1), (4, 0)]
    take(f, Result(1, 1, computed=3))
    assert f.orders(0.0) is None
    take(f, said("a"))
    assert [(admit.seq, admit.order, admit.group) for admit in send(f).admit] == [(2, 2, 1), (3, 3, 1)]
    assert f.live().waiting == 3 and f.live().running == 1


def test_siblings_keep_their_place_before_who_came_later() -> None:
    f = front(seats=1)
    group(f)
    for name in ("x", "y", "z"):
        f.submit(ask(name), now=0.0)
    assert [admit.seq for admit in send(f).admit] == [1, 4, 5]
    f.receive(report(1, said("a"), room=Headroom(2, PAGES)), 0.0)
    assert [admit.seq for admit in send(f).admit][:3] == [2, 3, 6]


def test_when_a_leader_goes_early_the_oldest_sibling_leads() -> None:
    f = front()
    group(f)
    send(f)
    f.cancel("r", 0.0)
    orders = send(f)
    assert orders.cancel == ((1, 1),) and [(admit.seq, admit.group) for admit in orders.admit] == [(2, 1)]
    (error,) = take(f, Result(2, 1, outcome="error", error="not finite"), orders=2)
    assert error.request_id == "r.1"
    assert [admit.seq for admit in send(f).admit] == [3]


def test_a_sibling_that_leads_pays_for_the_prompt() -> None:
    alone, led = front(), front()
    alone.submit(ask("r"), now=0.0)
    group(led)
    send(led)
    led.cancel("r", 0.0)
    charged = []
    for f in (alone, led):
        assert len(send(f).admit) == 1
        (standing,) = f._seats.room.standings()
        charged.append(standing.served)
    assert charged[1] == charged[0] > 0


def test_a_sibling_may_go_while_it_waits() -> None:
    f = front()
    group(f)
    send(f)
    delta = f.cancel("r.1", 0.0)
    assert delta is not None and delta.finish_reason == "cancelled"
    assert f.orders(0.0) is None
    take(f, said("a", outcome="length"))
    assert [admit.seq for admit in send(f).admit] == [3]


def test_a_sibling_of_one_that_has_begun_or_ended_waits_for_nobody() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    send(f)
    take(f, said("a"))
    f.submit(replace(ask("s"), leader="r"), replace(ask("t"), leader="gone"), now=0.0)
    assert [(admit.seq, admit.group) for admit in send(f).admit] == [(2, 1), (3, 0)]


def test_a_dead_worker_ends_siblings_too() -> None:
    f = front()
    group(f)
    send(f)
    assert [delta.request_id for delta in f.fail_all("killed", 0.0)] == ["r", "r.1", "r.2"]
    f.check()
    assert send(f).admit == ()


def test_a_group_is_taken_whole_or_not_at_all() -> None:
    f = front()
    f.submit(ask("r.1"), now=0.0)
    with pytest.raises(InvalidRequest, match="in use"):
        group(f)
    f.check()
    assert [admit.seq for admit in send(f).admit] == [1]
    f.submit(ask("r"), now=0.0)


def test_siblings_that_ask_for_no_tokens_end_at_once_but_for_the_prompts_log_probabilities() -> None:
    f = front()
    deltas = group(f, max_tokens=0, prompt_logprobs=0)
    assert [delta.request_id for delta in deltas] == ["r.1", "r.2"]
    assert [admit.seq for admit in send(f).admit] == [1]
    assert len(group(front(), max_tokens=0)) == 3


def test_each_siblings_prompt_counts_in_its_usage() -> None:
    f = front()
    group(f, n=2)
    send(f)
    take(f, said("a", outcome="length"))
    send(f)
    (last,) = take(f, said("b", seq=2, outcome="length", cached=4))
    assert last.usage is not None and (last.usage.prompt_tokens, last.usage.cached_tokens) == (5, 4)


def test_prefix_cache_queries_count_prompts_that_may_be_found() -> None:
    f = front()
    f.submit(ask("r"), ask("s", prompt_logprobs=0), now=0.0)
    send(f)
    take(f, said("a", cached=4), said("b", seq=2, prompt_logprobs=logs("ello")))
    lines = f._metrics.render(f.stats(0.0)).decode().splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("fairstep:prefix_cache_queries_total")] == ["5.0"]


def test_a_stop_id_that_the_caller_named_is_told_even_if_it_is_the_models_own() -> None:
    f = front()
    f.submit(ask("r", stop_token_ids=[EOS], ignore_eos=True), now=0.0)
    send(f)
    (last,) = take(f, Result(1, 1, (EOS,), "stop", stop_id=EOS))
    assert last.stop_reason == EOS


@pytest.mark.parametrize("tenant", ["", 42, "\udc80", "a\nb"])
def test_a_tenant_must_be_clean_text(tenant: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(ask("r"), tenant=tenant)
    assert caught.value.param == "tenant"


def test_a_request_id_in_use_is_refused() -> None:
    f = front()
    f.submit(ask("r"), now=0.0)
    with pytest.raises(InvalidRequest, match="in use"):
        f.submit(ask("r"), now=0.0)
    f.cancel("r", 0.0)
    f.submit(ask("r"), now=0.0)


def test_times_are_measured_from_arrival_and_between_reports() -> None:
    f = front()
    f.submit(ask("r", arrival=1.0, max_tokens=3, stop=["zz"]), now=0.0)
    send(f, now=1.5)
    for now, text in ((2.0, "a"), (2.25, "z"), (3.0, "b")):
        take(f, said(text, outcome="length" if text == "b" else None), now=now)
    text = f._metrics.render(f.stats(0.0)).decode()
    assert _sum(text, "time_to_first_token_seconds") == 1.0
    assert _sum(text, "inter_token_latency_seconds") == 1.0  # 0.25 while z was held back, then 0.75
    assert _sum(text, "request_queue_time_seconds") == 0.5
    assert _sum(text, "e2e_request_latency_seconds") == 2.0


def _sum(text: str, name: str) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(f"fairstep:{name}_sum")]
    return float(line.split()[-1])


def late(name: str, **deadlines: float) -> Request:
    return replace(ask(name), **deadlines)  # type: ignore[arg-type]


def test_a_waiting_request_past_its_deadline_ends_and_is_never_sent() -> None:
    f = front()
    f.submit(late("r", deadline=5.0), ask("other"), now=0.0)
    assert f.next_expiry == 5.0 and f.expire(4.9) == []
    (last,) = f.expire(5.0)
    assert (last.finish_reason, last.code) == ("error", "deadline_exceeded") and "deadline" in (last.error or "")
    assert [admit.seq for admit in send(f, 5.0).admit] == [2] and f.next_expiry is None


def stepped(f: Front, seconds: float, now: float = 0.0) -> None:
    """A step of the worker that took so long, of nobody's."""
    of = Coefficients(0, 0, 0, 0)
    step = StepRecord(1, (SliceRecord(99, 1, 0, 1, True),), 0, 1, seconds, 0.0, 0.0, of, 0.0, seconds)
    f.receive(Report(0, (), Headroom(0, 0), Gauges(pages_total=PAGES), of, step), now)


def test_what_waits_ends_at_the_first_instant_at_which_it_cannot_be_in_time_and_is_never_sent() -> None:
    f = front()
    stepped(f, 1.0)
    f.submit(late("whole", deadline=5.0, params=SamplingParams(max_tokens=9, min_tokens=3)), now=0.0)
    f.submit(late("first", ttft_deadline=4.0), ask("free"), now=0.0)
    shortest = 0.9  # nine tenths of the shortest step there was
    assert f.next_expiry == pytest.approx(5.0 - 3 * shortest)
    (last,) = f.expire(f.next_expiry)
    assert (last.request_id, last.code) == ("whole", "deadline_exceeded") and "too little time" in (last.error or "")
    assert f.next_expiry == pytest.approx(4.0 - shortest)
    assert [delta.request_id for delta in f.expire(3.2)] == ["first"]
    f.receive(report(0), 3.2)
    assert [admit.seq for admit in send(f, 3.2).admit] == [3]


def test_a_shorter_step_meanwhile_leaves_it_more_time() -> None:
    f = front()
    stepped(f, 2.0)
    f.submit(late("r", deadline=5.0), now=0.0)
    at = f.next_expiry
    assert at == pytest.approx(5.0 - 1.8)
    stepped(f, 1.0)
    assert f.expire(3.3) == [] and f.next_expiry == pytest.approx(5.0 - 0.9)
    assert len(f.expire(4.1)) == 1


def test_who_begins_in_time_has_until_its_deadline_and_from_a_yield_on_as_long_as_it_can_be_met() -> None:
    f = front()
    stepped(f, 1.0)
    f.submit(late("r", deadline=5.0), now=0.0)
    f.receive(report(0), 0.0)
    send(f)
    assert f.next_expiry == 5.0
    take(f, said("a", outcome="yielded"), now=1.0)
    assert f.next_expiry == pytest.approx(5.0 - 0.9)


def test_a_running_request_past_its_deadline_is_cancelled_in_the_worker() -> None:
    f = front()
    f.submit(late("r", deadline=5.0), now=0.0)
    send(f)
    take(f, said("a"))
    (last,) = f.expire(6.0)
    assert last.code == "deadline_exceeded" and last.usage is not None and last.usage.completion_tokens == 1
    assert send(f, 6.0).cancel == ((1, 1),)
    assert take(f, said("b")) == [], "a late result revives nothing"


def test_a_first_token_in_time_ends_the_wait_for_it_alone() -> None:
    f = front()
    f.submit(late("r", ttft_deadline=2.0, deadline=9.0), late("silent", ttft_deadline=3.0), now=0.0)
    send(f)
    take(f, said("a"), now=1.0)
    assert f.next_expiry == 3.0
    assert [delta.request_id for delta in f.expire(3.0)] == ["silent"] and f.next_expiry == 9.0


def test_a_tenants_queue_is_in_order_of_the_sooner_deadline() -> None:
    f = Front(ready(settings(seats=1)), FakeTokenizer(), make_room("drr"), Metrics(), draw_seed=lambda: 7, shared=True)
    f.submit(late("never"), late("whole", deadline=8.0), late("first", deadline=90.0, ttft_deadline=7.0), now=0.0)
    assert [admit.seq for admit in send(f).admit] == [3, 2, 1], "one fits, and two are sent ahead of need"


def shared_front(**tenants: Any) -> Front:
    book = Tenants(tenants=[TenantTerms(name, **terms) for name, terms in tenants.items()])
    room = make_room("drr")
    return Front(ready(settings()), FakeTokenizer(), room, Metrics(), draw_seed=lambda: 7, tenants=book, shared=True)


def flood(f: Front, count: int) -> None:
    for number in range(count):
        f.submit(replace(ask(f"a{number}"), tenant="a"), now=0.0)


def test_those_sent_ahead_are_called_back_when_another_tenant_comes_and_one_that_runs_yields() -> None:
    f = shared_front()
    flood(f, 8)
    assert len(send(f).admit) == SEATS + 2
    full = Headroom(-2, 0, queued=2)
    f.receive(report(1, *(said("x", seq) for seq in range(1, 5)), room=full), 0.0)
    f.submit(replace(ask("b"), tenant="b"), now=0.0)
    orders = send(f)
    assert [seq for seq, _ in orders.give_back] == [5, 6, 4] and not orders.admit
    assert f.orders(0.0) is None, "at most one a step"
    back = [said("", seq, outcome="yielded") for seq in (5, 6, 4)]
    f.receive(report(2, *back, room=Headroom(1, 40)), 0.0)
    assert [(admit.seq, admit.tenant) for admit in send(f).admit] == [(9, "b")]


def test_only_so_many_of_a_tenant_run_as_it_may_and_others_go_past_it() -> None:
    f = shared_front(a={"max_running": 1})
    flood(f, 3)
    f.submit(replace(ask("b"), tenant="b"), now=0.0)
    assert sorted(admit.seq for admit in send(f).admit) == [1, 4]
    take(f, said("x", outcome="stop", stop_id=1))
    assert [admit.seq for admit in send(f).admit] == [2]
