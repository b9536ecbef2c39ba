"""clients.py: simulated requests pass the real door: places, limits, the bounded queue, deadlines."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fairstep.admission.bounded_queue import NONE, QueueBounds
from fairstep.admission.limits import Limit
from fairstep.door import Coefficients
from fairstep.fairness.policies import make_room
from fairstep.simulation.logbook import DONE, Logbook
from fairstep.simulation.simulator import SETTINGS, Setup, Simulator
from fairstep.simulation.step_cost import StepCost
from fairstep.simulation.suites import SUITES, suite_trace
from fairstep.simulation.summary import summarize
from fairstep.simulation.trace import NO_BOOK, Arrival, Trace
from fairstep.tenants import Tenants, TenantTerms

SECOND = StepCost(Coefficients(base=1.0, prompt=0.0, sequence=0.0, context=0.0))  # a step takes one
ONE_SEAT = replace(SETTINGS, seats=1)


def run(*arrivals: Arrival, terms: TenantTerms | None = None, **how: object) -> Logbook:
    book = Tenants(tenants=[terms]) if terms else NO_BOOK
    setup = Setup(settings=ONE_SEAT, cost=SECOND, shared=True, **how)  # type: ignore[arg-type]
    simulator = Simulator(Trace.of("test", arrivals, book=book), make_room("drr"), setup)
    log = simulator.run()
    simulator.check()
    assert simulator.admission.waiting == NONE and not simulator.admission.live
    return log


def ask(tenant: str, at: float = 0.0, outputs: int = 2, **more: object) -> Arrival:
    return Arrival(at=at, tenant=tenant, prompt_tokens=4, outputs=outputs, **more)  # type: ignore[arg-type]


def fates(log: Logbook) -> list[tuple[str, str]]:
    return [(story.end, story.why) for story in log.stories]


def test_a_full_queue_gives_a_place_to_the_tenant_that_has_none() -> None:
    log = run(*[ask("flood") for _ in range(4)], ask("small", at=0.5), bounds=QueueBounds(entries=4))
    assert [end for end, _ in fates(log)] == ["stop", "stop", "stop", "pushed_out", "stop"]
    pushed = log.stories[3]
    assert (pushed.why, pushed.ended_at, pushed.outputs) == ("server_overloaded", 0.5, 0)
    assert summarize(log).tenants["flood"].lost == 1


def test_a_flood_is_refused_where_its_own_part_ends() -> None:
    log = run(*[ask("flood") for _ in range(5)], bounds=QueueBounds(entries=4))
    assert fates(log)[4] == ("refused", "server_overloaded")
    assert summarize(log).tenants["flood"].refused == {"server_overloaded": 1}


def test_bounds_on_tokens_and_bytes_count_too() -> None:
    assert fates(run(*[ask("A") for _ in range(3)], bounds=QueueBounds(tokens=8)))[2][0] == "refused"
    assert fates(run(*[ask("A") for _ in range(3)], bounds=QueueBounds(bytes=32)))[2][0] == "refused"


def test_limits_of_the_trace_s_tenants_hold() -> None:
    terms = TenantTerms("A", limits=(Limit(what="requests", per="minute", amount=2),))
    log = run(*[ask("A", at=at) for at in (0.0, 1.0, 2.0, 50.0)], terms=terms)
    assert [why for _, why in fates(log)] == ["", "", "rate_limit_exceeded", ""]


def test_what_limits_gave_for_outputs_that_did_not_come_is_given_back() -> None:
    terms = TenantTerms("A", limits=(Limit(what="output_tokens", per="minute", amount=100),))
    log = run(ask("A", max_tokens=90), ask("A", at=9.0, max_tokens=90), terms=terms)
    assert fates(log) == [("stop", ""), ("stop", "")]


def test_whoever_has_enough_in_the_server_is_refused_until_one_has_ended() -> None:
    terms = TenantTerms("A", max_concurrent=1)
    log = run(*[ask("A", at=at) for at in (0.0, 1.0, 2.5)], terms=terms)
    assert [why for _, why in fates(log)] == ["", "concurrency_limit_exceeded", ""]


def test_a_deadline_that_cannot_be_met_is_refused_once_there_is_something_to_judge_by() -> None:
    past = [ask("A", at=10.0 * number, outputs=5) for number in range(3)]
    late = ask("A", at=40.0, outputs=5, deadline=2.0)
    assert fates(run(*past, late, refuses=True))[3][0] == "refused"
    assert fates(run(*past, late))[3][0] == "expired"
    assert fates(run(*past, replace(late, deadline=9.0), refuses=True))[3][0] == "stop"


def test_a_flood_into_a_full_queue_costs_the_small_tenant_nothing() -> None:
    suite, trace = SUITES["burst_capped"], suite_trace("burst_capped")
    few = Trace.of("few", [each for each in trace.arrivals if each.tenant == "B" or each.number % 20 == 0])
    assert suite.bounds.entries == 1000
    simulator = Simulator(few, make_room("drr"), Setup(shared=True, bounds=QueueBounds(entries=50)))
    summary = summarize(simulator.run())
    assert (summary.tenants["B"].requests, summary.tenants["B"].lost) == (5, 0)
    assert summary.tenants["A"].lost > 400
    simulator.check()


arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0, 20),
        tenant=st.sampled_from("AB"),
        prompt_tokens=st.integers(1, 60),
        outputs=st.integers(1, 20),
        max_tokens=st.none() | st.integers(1, 20),
        deadline=st.none() | st.floats(0.1, 60),
        ttft_deadline=st.none() | st.floats(0.1, 30),
        cancel=st.none() | st.floats(0, 30),
    ),
    max_size=15,
)


@settings(deadline=None)
@given(arrivals, st.booleans(), st.integers(1, 4))
def test_every_place_is_given_back_and_every_request_ends_once(
    asked: list[Arrival], refuses: bool, entries: int
) -> None:
    terms = TenantTerms("A", max_concurrent=5, limits=(Limit(what="tokens", per="minute", amount=200),))
    log = run(*asked, terms=terms, refuses=refuses, bounds=QueueBounds(entries=entries, tokens=150))
    for story in log.stories:
        assert story.end in (*DONE, "cancelled", "expired", "refused", "pushed_out")
        assert story.end != "refused" or (story.why and story.sent_at is None)
    assert not log.waiting
