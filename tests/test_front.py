"""front.py: each request ends once; stale results are dropped; stop strings end in the front; times are counted."""

from dataclasses import replace
from typing import Any

import pytest

from fairstep.door import Coefficients, Gauges, Headroom, Orders, Report, Result
from fairstep.errors import ContextTooLong, InvalidRequest
from fairstep.fairness.fcfs import Fcfs
from fairstep.front import Front
from fairstep.metrics import Metrics
from fairstep.request import Delta, Request, SamplingParams
from fakes_text import EOS, TURN, FakeTokenizer
from fakes_worker import ready, settings

SEATS, PAGES = 4, 64


def front(**changes: int) -> Front:
    return Front(ready(settings(**changes)), FakeTokenizer(), Fcfs(), Metrics(), draw_seed=lambda: 7)


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
    f.submit(ask("r", max_tokens=3, stop_token_ids=[5]))
    (admit,) = send(f).admit
    assert (admit.seq, admit.attempt, admit.prompt_len) == (1, 1, 5)
    assert admit.sampling.max_tokens == 3 and admit.sampling.stop_ids == (EOS, 5) and admit.sampling.seed == 7
    assert f.orders(0.0) is None, "nothing new"


def test_the_answer_ends_once_and_usage_counts_it() -> None:
    f = front()
    f.submit(ask("r", max_tokens=2))
    send(f)
    assert take(f, said("a", cached=4)) == [Delta("r", "a", (97,))]
    (last,) = take(f, said("b", outcome="length"))
    assert (last.text, last.finish_reason, f.has_requests) == ("b", "length", False)
    assert last.usage is not None and (last.usage.completion_tokens, last.usage.cached_tokens) == (2, 4)
    assert take(f, said("c")) == [], "a late result revives nothing"
    assert f.orders(0.0) is None, "the worker knows that it ended: no cancel"


def test_a_stop_string_cancels_in_the_worker_and_is_not_shown() -> None:
    f = front()
    f.submit(ask("r", stop=["cd"]))
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
    f.submit(ask("r"))
    send(f)
    (last,) = take(f, Result(1, 1, (EOS,), "stop", stop_id=EOS))
    assert (last.text, last.token_ids, last.finish_reason, last.stop_reason) == ("", (EOS,), "stop", None)


def test_a_stop_string_that_is_a_special_token_stops_on_its_id() -> None:
    f = front()
    f.submit(ask("r", stop=["<turn>"], ignore_eos=True))
    assert send(f).admit[0].sampling.stop_ids == (TURN,)
    (last,) = take(f, Result(1, 1, (TURN,), "stop", stop_id=TURN))
    assert (last.text, last.finish_reason, last.stop_reason) == ("", "stop", "<turn>")


@pytest.mark.parametrize("outcome", ["preempted", "yielded"])
def test_a_preempted_request_returns_first_with_its_outputs_and_a_higher_attempt(outcome: Any) -> None:
    f = front(seats=1)
    f.submit(ask("old"))
    f.submit(ask("next"))
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
    f.submit(ask("r"))
    delta = f.cancel("r", 1.0)
    assert delta is not None and delta.finish_reason == "cancelled"
    assert f.orders(1.0) is None and f.cancel("r", 1.0) is None


def test_a_cancel_while_running_goes_out_with_the_next_orders() -> None:
    f = front()
    f.submit(ask("r"))
    send(f)
    f.cancel("r", 1.0)
    assert send(f).cancel == ((1, 1),)
    assert f.live().running == 0 and f.live().waiting == 0


def test_seats_bound_what_is_sent_but_for_two_ahead() -> None:
    f = front(seats=2)
    for n in range(9):
        f.submit(ask(str(n)))
    assert len(send(f).admit) == 4
    f.receive(report(1, room=Headroom(seats=1, pages=PAGES, queued=0)), 0.0)
    assert len(send(f).admit) == 3


def test_a_sooner_priority_overtakes_what_still_waits() -> None:
    f = front(seats=1)
    for name, priority in (("a", 5), ("b", 5), ("c", 5), ("d", 5), ("urgent", 0)):
        f.submit(ask(name, priority=priority))
    assert [admit.seq for admit in send(f).admit] == [5, 1, 2]


def test_an_error_of_its_own_ends_only_that_request() -> None:
    f = front()
    f.submit(ask("bad"))
    f.submit(ask("good"))
    send(f)
    bad, good = take(f, Result(1, 1, outcome="error", error="not finite"), said("a", seq=2))
    assert (bad.finish_reason, bad.error, good.text) == ("error", "not finite", "a")


def test_a_dead_worker_ends_all_with_its_reason() -> None:
    f = front()
    f.submit(ask("a"))
    f.submit(ask("b"))
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
        (replace(ask("r"), prompt_ids=(-1,)), "prompt"),
    ],
)
def test_what_can_never_be_served_is_refused_at_submit(request_: Request, param: str) -> None:
    f = front()
    with pytest.raises(InvalidRequest) as caught:
        f.submit(request_)
    assert caught.value.param == param and not f.has_requests
    assert isinstance(caught.value, ContextTooLong) == (
        param in ("prompt", "max_tokens") and len(request_.prompt_ids) > 1
    )
    f.check()


def test_a_stop_id_that_the_caller_named_is_told_even_if_it_is_the_models_own() -> None:
    f = front()
    f.submit(ask("r", stop_token_ids=[EOS], ignore_eos=True))
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
    f.submit(ask("r"))
    with pytest.raises(InvalidRequest, match="in use"):
        f.submit(ask("r"))
    f.cancel("r", 0.0)
    f.submit(ask("r"))


def test_times_are_measured_from_arrival_and_between_reports() -> None:
    f = front()
    f.submit(ask("r", arrival=1.0, max_tokens=3, stop=["zz"]))
    send(f, now=1.5)
    for now, text in ((2.0, "a"), (2.25, "z"), (3.0, "b")):
        take(f, said(text, outcome="length" if text == "b" else None), now=now)
    text = f._metrics.render(f.live()).decode()
    assert _sum(text, "time_to_first_token_seconds") == 1.0
    assert _sum(text, "inter_token_latency_seconds") == 1.0  # 0.25 while z was held back, then 0.75
    assert _sum(text, "request_queue_time_seconds") == 0.5
    assert _sum(text, "e2e_request_latency_seconds") == 2.0


def _sum(text: str, name: str) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(f"fairstep:{name}_sum")]
    return float(line.split()[-1])
