"""admission.py: stage by stage, each giving back what earlier ones took when it refuses."""

from math import inf

import pytest

from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds, Size
from fairstep.admission.calibration import JUDGED, KEPT
from fairstep.admission.deadlines import NO_DEADLINES, Allowances, Deadlines, LatencyTarget
from fairstep.admission.forecast import Forecast, Prospect, fixed
from fairstep.admission.limit_store import MemoryLimits
from fairstep.admission.limits import Limit, Need
from fairstep.admission.place import Place
from fairstep.admission.waiting_time import Waited
from fairstep.errors import (
    ConcurrencyLimited,
    DeadlineImpossible,
    DeadlineUnattainable,
    FairstepError,
    QuotaExhausted,
    RateLimited,
    ServerOverloaded,
    TenantQueueFull,
)
from fairstep.tenants import TenantTerms

A, B = TenantTerms("a"), TenantTerms("b")
SMALL = Need(prompt_tokens=10, max_tokens=10)


def door(targets: tuple[LatencyTarget, ...] = (), **bounds: int) -> Admission:
    return Admission(QueueBounds(**bounds), MemoryLimits(), lambda: targets)


def arrive(admission: Admission, terms: TenantTerms = A, *, now: float = 0.0, size: int = 100) -> Place:
    return admission.arrive("request", terms, endpoint="/v1/completions", model="m", size=size, now=now)


def wait(
    admission: Admission,
    terms: TenantTerms = A,
    *,
    now: float = 0.0,
    need: Need = SMALL,
    deadlines: Deadlines = NO_DEADLINES,
    prospect: Prospect | None = None,
) -> Place:
    place = arrive(admission, terms, now=now)
    admission.count(place, need, now=now, unix=now)
    admission.judge(place, deadlines, prospect, now)
    return place


def assert_empty(admission: Admission) -> None:
    admission.check()
    assert (admission.waiting, admission.live, admission.next_due) == (Size(), 0, inf)


def test_a_request_passes_all_stages_and_leaves_nothing() -> None:
    admission = door()
    place = wait(admission)
    assert admission.waiting == Size(1, 10, 100)
    admission.begin(place, 1.0)
    assert (admission.waiting, admission.live) == (Size(), 1)
    place.settle(5, 2.0)
    place.settle(5, 2.0)
    place.release(3.0)
    assert_empty(admission)


def test_more_requests_at_once_than_a_tenant_may_have_are_refused_on_arrival() -> None:
    admission, terms = door(), TenantTerms("a", max_concurrent=2)
    first, _ = wait(admission, terms), wait(admission, terms)
    with pytest.raises(ConcurrencyLimited, match="2 requests"):
        arrive(admission, terms)
    wait(admission, B)
    first.release(1.0)
    wait(admission, terms)
    assert (admission.live, admission.live_of("a")) == (3, 2)


def test_a_limit_that_refuses_gives_the_place_back() -> None:
    admission = door()
    terms = TenantTerms("a", limits=(Limit(what="tokens", per="minute", amount=15),))
    held = wait(admission, terms)
    with pytest.raises(RateLimited) as caught:
        wait(admission, terms)
    assert caught.value.retry_after == pytest.approx(4.0)
    assert (admission.live, admission.waiting.entries) == (1, 1)
    held.settle(5, 0.0)
    assert admission.owed("a", terms.limits[0], 0.0) == 15.0
    assert_empty(admission)


def test_whoever_is_over_its_limits_puts_nobody_out() -> None:
    admission = door(entries=2)
    limited = TenantTerms("limited", limits=(Limit(what="requests", per="minute", amount=1),))
    wait(admission, limited).settle(0, 0.0)
    others = [wait(admission, A), wait(admission, A)]
    with pytest.raises(RateLimited):
        arrive(admission, limited)
    assert [place.stage for place in others] == ["waiting", "waiting"]


def test_a_month_that_is_used_up_is_told_so() -> None:
    admission = door()
    terms = TenantTerms("a", limits=(Limit(what="requests", per="month", amount=1),))
    wait(admission, terms).settle(3, 1.0)
    with pytest.raises(QuotaExhausted):
        wait(admission, terms)
    assert_empty(admission)


def test_tokens_that_find_no_place_give_the_limits_back() -> None:
    admission = door(tokens=100)
    terms = TenantTerms("a", limits=(Limit(what="tokens", per="minute", amount=1000),))
    wait(admission, terms, need=Need(prompt_tokens=80, max_tokens=0))
    with pytest.raises(ServerOverloaded) as caught:
        wait(admission, terms, need=Need(prompt_tokens=30, max_tokens=0))
    assert caught.value.retry_after == 1.0
    assert admission.owed("a", terms.limits[0], 0.0) == 80.0
    assert admission.waiting == Size(1, 80, 100)
    admission.check()


def test_of_10_000_against_5_with_1_000_places_the_5_lose_none() -> None:
    admission, refused = door(entries=1000), 0
    small: list[Place] = []
    for number in range(10_000):
        try:
            wait(admission, A, now=float(number))
        except ServerOverloaded:
            refused += 1
        except TenantQueueFull:
            refused += 1
        if number % 2000 == 1999:
            small.append(wait(admission, B, now=float(number)))
    assert [place.stage for place in small] == ["waiting"] * 5
    pushed = admission.pushed()
    assert {place.tenant for place in pushed} == {"a"} and len(pushed) == 5
    assert refused == 10_000 - 1000
    assert admission.live_of("a") == 995
    admission.check()


def test_who_is_put_out_holds_nothing_and_is_told_at_its_next_stage() -> None:
    admission = door(entries=2)
    terms = TenantTerms("a", limits=(Limit(what="requests", per="minute", amount=5),))
    wait(admission, terms)
    newest = arrive(admission, terms)
    wait(admission, B)
    assert admission.pushed() == [newest] and admission.pushed() == []
    with pytest.raises(ServerOverloaded, match="left its place"):
        admission.count(newest, SMALL, now=0.0, unix=0.0)
    newest.release(1.0)
    assert admission.owed("a", terms.limits[0], 0.0) == 1.0
    assert admission.live == 2
    admission.check()


def test_limits_of_one_who_is_put_out_are_given_back() -> None:
    admission = door(entries=2)
    terms = TenantTerms("a", limits=(Limit(what="tokens", per="minute", amount=50),))
    wait(admission, terms)
    wait(admission, terms)
    assert admission.owed("a", terms.limits[0], 0.0) == 40.0
    arrive(admission, B)
    assert admission.owed("a", terms.limits[0], 0.0) == 20.0


def test_full_for_one_tenant_alone_is_our_limit_and_for_one_of_several_its_own() -> None:
    admission = door(entries=2)
    wait(admission, A)
    wait(admission, A)
    with pytest.raises(ServerOverloaded):
        arrive(admission, A)
    wait(admission, B)
    with pytest.raises(TenantQueueFull):
        arrive(admission, A)


def test_a_tenants_part_of_the_queue_is_its_own_limit() -> None:
    admission, terms = door(entries=10), TenantTerms("a", queue_share=0.2)
    for _ in range(2):
        wait(admission, terms)
    with pytest.raises(TenantQueueFull, match="part"):
        arrive(admission, terms)
    assert admission.live == 2


def test_siblings_take_a_place_each_and_leave_one_by_one() -> None:
    admission = door(entries=4)
    place = wait(admission, need=Need(prompt_tokens=10, max_tokens=5, sequences=3))
    assert admission.waiting == Size(3, 10, 100)
    admission.begin(place, 0.0)
    assert admission.waiting.entries == 2
    admission.begin(place, 1.0, sequences=2)
    assert admission.waiting == Size()
    admission.begin(place, 2.0)  # one came back after a yield: it has its place no more
    place.settle(15, 3.0)
    assert_empty(admission)


def test_what_an_idle_server_could_not_do_is_impossible_and_never_comes_again() -> None:
    admission = door()
    with pytest.raises(DeadlineImpossible) as caught:
        wait(admission, deadlines=Deadlines(whole=99), prospect=fixed(wait=0, compute=100))
    assert (caught.value.param, caught.value.should_retry) == ("deadline_ms", False)
    with pytest.raises(DeadlineImpossible, match="passed"):
        wait(admission, deadlines=Deadlines(first=-1))
    assert_empty(admission)


def test_e_with_deadline_150_is_refused_when_it_comes_at_1() -> None:
    admission = door()
    with pytest.raises(DeadlineUnattainable) as caught:
        wait(admission, now=1, deadlines=Deadlines(whole=150), prospect=fixed(wait=99, compute=100))
    assert caught.value.retry_after == 50
    assert_empty(admission)


def test_e_with_deadline_150_that_was_let_in_expires_at_50_and_no_other_instant() -> None:
    admission = door()
    e = wait(admission, now=1, deadlines=Deadlines(whole=150), prospect=fixed(wait=0, compute=100))
    assert admission.next_due == 50
    assert admission.overdue(49.999) == []
    assert admission.overdue(50) == [e] and admission.overdue(50) == []
    assert "still waiting" in str(e.exceeded(50)) and e.exceeded(50).should_retry is False
    e.settle(0, 50, prompt=0)
    assert_empty(admission)


def test_who_begins_at_the_last_instant_is_in_time() -> None:
    admission = door()
    place = wait(admission, deadlines=Deadlines(whole=150), prospect=fixed(wait=0, compute=100))
    admission.begin(place, 50)
    assert admission.overdue(50) == []
    assert admission.next_due == 150
    assert admission.overdue(150) == [place]


def test_a_first_token_in_time_leaves_the_deadline_of_the_whole() -> None:
    admission = door()
    place = wait(admission, deadlines=Deadlines(first=10, whole=30))
    assert admission.next_due == 10
    admission.begin(place, 5)
    admission.tell(place, 5)
    admission.tell(place, 6)
    assert admission.next_due == 30


def test_before_anything_is_known_only_what_has_passed_is_refused() -> None:
    admission = door()
    assert wait(admission, deadlines=Deadlines(whole=0.001)).due == 0.001


def test_a_target_judges_at_the_door_alone_and_only_who_names_no_deadline() -> None:
    admission = door((LatencyTarget(whole=2.0, tier=0),))
    slow = Prospect(Forecast(3.0, 3.5, 4.0), Forecast(0.0, 0.5, 1.0), Forecast(0.0, 0.0, 0.0))
    with pytest.raises(ServerOverloaded) as caught:
        wait(admission, prospect=slow)
    assert caught.value.retry_after == pytest.approx(2.0)
    assert wait(admission, prospect=slow, deadlines=Deadlines(whole=5.0)).stage == "waiting"
    assert wait(admission, TenantTerms("b", tier=1), prospect=slow).due == inf
    long = Prospect(Forecast(0.0, 3.5, 4.0), Forecast(0.0, 3.5, 4.0), Forecast(0.0, 0.0, 0.0))
    assert wait(admission, prospect=long).due == inf


def test_forecasts_are_put_right_by_what_waits_turned_out_to_be() -> None:
    admission = door()
    for _ in range(KEPT):
        place = wait(admission, prospect=fixed(wait=5.0, compute=1.0))
        admission.begin(place, 12.0)
        admission.tell(place, 12.0)
    with pytest.raises(DeadlineUnattainable) as caught:
        wait(admission, deadlines=Deadlines(whole=8.0), prospect=fixed(wait=5.0, compute=1.0))
    assert caught.value.retry_after == pytest.approx(4.0, rel=0.05)


def test_who_gives_up_before_a_first_token_tells_that_it_takes_longer() -> None:
    admission = door()
    for _ in range(KEPT):
        wait(admission, prospect=fixed(wait=1.0, compute=0.0)).release(4.0)
    assert admission.calibration.factor == pytest.approx(4.05 / 1.05, rel=0.01)


def test_forecasts_that_are_late_by_far_refuse_nobody_any_more() -> None:
    admission = door()
    hopeless = fixed(wait=50.0, compute=1.0)
    with pytest.raises(DeadlineUnattainable):
        wait(admission, deadlines=Deadlines(whole=8.0), prospect=hopeless)
    for _ in range(JUDGED):
        place = wait(admission, prospect=hopeless)
        admission.begin(place, 0.1)
        admission.tell(place, 0.1)
    assert not admission.calibration.is_trusted
    assert wait(admission, deadlines=Deadlines(whole=8.0), prospect=hopeless).stage == "waiting"
    with pytest.raises(DeadlineImpossible):  # what is certain is
        wait(admission, deadlines=Deadlines(whole=0.5), prospect=hopeless)


def test_who_misses_a_deadline_makes_refusals_more_likely_and_who_is_cut_does_not() -> None:
    admission = door()

    def end(at: float, *, natural: bool) -> float:
        before = admission.strictness.part
        place = wait(admission, deadlines=Deadlines(whole=10.0), prospect=fixed(wait=1.0, compute=1.0))
        admission.begin(place, 2.0)
        admission.tell(place, 2.0)
        place.settle(3, at, natural=natural)
        return admission.strictness.part - before

    assert end(5.0, natural=True) < 0.0 < end(11.0, natural=True)
    assert end(10.0, natural=False) > 0.0 == end(5.0, natural=False)
    before = admission.strictness.part
    wait(admission, deadlines=Deadlines(whole=10.0), prospect=fixed(wait=1.0, compute=1.0)).release(9.0)
    assert admission.strictness.part > before, "it waited until it was too late"


def test_an_unknown_tenant_is_refused_nothing_but_the_impossible() -> None:
    admission = door()
    unknown = Prospect(None, Forecast(0.0, 5.0, 9.0), Forecast(0.0, 0.1, 0.2))
    assert wait(admission, deadlines=Deadlines(whole=1.0), prospect=unknown).due == pytest.approx(0.8)
    with pytest.raises(DeadlineImpossible):
        wait(admission, deadlines=Deadlines(whole=0.1), prospect=unknown)


def test_both_parts_of_waiting_are_told_apart_and_spend_one_pot() -> None:
    admission = door()
    deadlines = Allowances(way_in=20, way_out=20).deadlines(received=20, first=None, whole=200)
    place = wait(admission, now=20, deadlines=deadlines, prospect=fixed(wait=0, compute=100))
    assert place.due - place.arrived == 60
    admission.idle.set(True, 50)
    admission.begin(place, 60)
    assert place.waited == Waited(by_choice=10, for_worker=30)


def test_hints_follow_the_pace_at_which_requests_begin() -> None:
    admission = door(entries=100)
    for second in range(200):
        now = float(second)
        admission.begin(wait(admission, now=now), now)
    for _ in range(100):
        wait(admission, now=200.0)
    hints = []
    for _ in range(3):
        with pytest.raises(ServerOverloaded) as caught:
            arrive(admission, now=200.0)
        hints.append(caught.value.retry_after)
    assert hints == pytest.approx([1.0, 2.0, 3.0], rel=0.05)
    assert admission.pace(200.0) == pytest.approx(1.0, rel=0.05)


def test_figures_are_those_of_the_limits_that_apply() -> None:
    admission = door()
    terms = TenantTerms("a", limits=(Limit(what="requests", per="minute", amount=6, model="m"),))
    wait(admission, terms)
    [figure] = admission.figures(terms, endpoint="/v1/completions", model="m", now=0.0)
    assert (figure.what, figure.limit, figure.remaining, figure.reset) == ("requests", 6, 5, 10.0)
    assert admission.figures(terms, endpoint="/v1/completions", model="other", now=0.0) == ()


@pytest.mark.parametrize("stage", ["arrived", "counted", "waiting", "running"])
@pytest.mark.parametrize("settles", [True, False])
def test_a_request_may_end_at_any_stage(stage: str, settles: bool) -> None:
    admission = door()
    terms = TenantTerms("a", limits=(Limit(what="tokens", per="minute", amount=100),))
    place = arrive(admission, terms)
    if stage != "arrived":
        admission.count(place, SMALL, now=0.0, unix=0.0)
    if stage in ("waiting", "running"):
        admission.judge(place, Deadlines(whole=9.0), None, 0.0)
    if stage == "running":
        admission.begin(place, 0.0)
    if settles:
        place.settle(4, 0.0)
    else:
        place.release(0.0)
    assert admission.owed("a", terms.limits[0], 0.0) == (14.0 if settles and stage != "arrived" else 0.0)
    assert_empty(admission)


def test_every_refusal_knows_whether_to_come_again() -> None:
    for error in (RateLimited, TenantQueueFull, ConcurrencyLimited, ServerOverloaded, DeadlineUnattainable):
        assert error("no", 3.0).retry_after == 3.0 and error("no").should_retry is True
    assert FairstepError("no").retry_after is None and FairstepError("no").should_retry is None
