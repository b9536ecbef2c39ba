"""loop.py: Orders in, plan, commit, Reports out; in particular Orders that come while a step is in flight."""

import random

import pytest

from fairstep.door import Admit, Orders, Report, Result, TokenLogprobs
from fairstep.stepping.cost import PRIOR, StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import NOT_FINITE, StepOutput, StepPlan
from fakes_stepping import admit, settings

TOKEN = 9


class Bench:
    """A StepLoop whose steps draw TOKEN, and the Orders' numbers."""

    def __init__(self, **changes: object) -> None:
        self.model = StepModel()
        self.loop = StepLoop(settings(**changes), self.model)
        self.number = 0

    def apply(
        self,
        *admits: Admit,
        cancel: tuple[tuple[int, int], ...] = (),
        give_back: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.number += 1
        self.loop.apply(Orders(self.number, cancel, give_back, admits))
        self.loop.check()

    def commit(self, plan: StepPlan, *tokens: int, seconds: float = 0.0) -> Report:
        drawn = tokens or (TOKEN,) * sum(piece.samples for piece in plan.slices)
        report = self.loop.commit(plan, StepOutput(tuple(drawn)), run_seconds=seconds)
        self.loop.check()
        return report

    def answer(self, output: StepOutput) -> Report:
        report = self.loop.commit(self.loop.plan(), output, run_seconds=0.0)
        self.loop.check()
        return report

    def step(self, *tokens: int) -> Report:
        return self.commit(self.loop.plan(), *tokens)


def outcome(result: Result) -> tuple[int, int, tuple[int, ...], str | None]:
    return result.seq, result.attempt, result.tokens, result.outcome


def test_an_empty_loop_plans_nothing_and_reports_all_its_room() -> None:
    bench = Bench()
    assert not bench.loop.has_work and bench.loop.plan().slices == ()
    report = bench.loop.report()
    assert (report.orders, report.results, report.step, report.coefficients) == (0, (), None, PRIOR)
    assert (report.headroom.seats, report.headroom.pages, report.headroom.queued) == (4, 16, 0)


def test_a_request_from_admission_to_its_last_token() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), max_tokens=3))
    assert bench.loop.has_work
    reports = [bench.step() for _ in range(3)]
    results = [result for report in reports for result in report.results]
    assert [outcome(result) for result in results] == [
        (1, 1, (TOKEN,), None),
        (1, 1, (TOKEN,), None),
        (1, 1, (TOKEN,), "length"),
    ]
    assert [(result.cached, result.computed, result.recomputed) for result in results] == [
        (0, 5, 0),
        (0, 1, 0),
        (0, 1, 0),
    ]
    assert not bench.loop.has_work and reports[-1].gauges.pages_used == 0


def test_a_stop_id_is_reported_as_the_last_token() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), stop_ids=(3,)))
    bench.step()
    (result,) = bench.step(3).results
    assert (result.tokens, result.outcome, result.stop_id) == ((3,), "stop", 3)


def test_the_context_ends_a_sequence_exactly_when_it_is_full() -> None:
    bench = Bench(context=7)
    bench.apply(admit(1, range(5), max_tokens=99))
    assert [bench.step().results[0].outcome for _ in range(2)] == [None, "length"]


def test_a_pool_smaller_than_the_context_is_the_context() -> None:
    bench = Bench(pages=2, context=1000)
    bench.apply(admit(1, range(5), max_tokens=99))
    assert [bench.step().results[0].outcome for _ in range(3)] == [None, None, "length"]


def test_a_prompt_in_chunks_reports_what_it_computed_and_no_token() -> None:
    bench = Bench(chunk=3)
    bench.apply(admit(1, range(5)))
    (result,) = bench.step().results
    assert (result.tokens, result.outcome, result.computed) == ((), None, 3)
    (result,) = bench.step().results
    assert (result.tokens, result.computed) == ((TOKEN,), 2)


def test_what_is_not_finite_ends_its_sequence_alone() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5)), admit(2, range(5, 10)))
    report = bench.step(NOT_FINITE, TOKEN)
    assert [outcome(result) for result in report.results] == [(1, 1, (), "error"), (2, 1, (TOKEN,), None)]
    assert "not finite" in (report.results[0].error or "") and "position 5" in (report.results[0].error or "")


def test_pages_of_what_is_not_finite_are_not_found_by_others() -> None:
    bench = Bench(chunk=4)
    bench.apply(admit(1, range(9)))
    bench.step()
    bench.step()
    bench.step(NOT_FINITE)
    bench.apply(admit(2, range(9)))
    assert bench.loop.plan().slices[0].start == 0


def test_cached_tokens_are_told_once_with_the_first_slice() -> None:
    bench = Bench(chunk=2)
    bench.apply(admit(1, range(9), max_tokens=1))
    while bench.loop.has_work:
        bench.step()
    bench.apply(admit(2, range(12)))
    results = [bench.step().results[0] for _ in range(2)]
    assert [(result.cached, result.computed) for result in results] == [(8, 2), (0, 2)]
    gauges = bench.loop.report().gauges
    assert (gauges.prefix_queries, gauges.prefix_hits) == (9 + 12, 8)


def test_a_later_attempt_counts_what_it_knew_and_did_not_find_as_recomputed() -> None:
    bench = Bench(prefix_cache=False, chunk=4)
    bench.apply(admit(1, range(6), attempt=2, prompt_len=5))
    results = [bench.step().results[0] for _ in range(3)]
    assert [(result.computed, result.recomputed) for result in results] == [(0, 4), (0, 2), (1, 0)]


def test_a_cancel_frees_seat_and_pages_at_once_and_says_nothing() -> None:
    bench = Bench(chunk=3)
    bench.apply(admit(1, range(5)), admit(2, range(5)))
    bench.step()
    bench.apply(cancel=((1, 1), (2, 1)))
    report = bench.loop.report()
    assert report.results == () and (report.gauges.running, report.gauges.pages_used) == (0, 0)
    assert report.headroom.seats == 4 and not bench.loop.has_work


def test_a_cancel_in_the_middle_of_a_prompt_leaves_its_full_pages_cached() -> None:
    bench = Bench(chunk=6)
    bench.apply(admit(1, range(20)))
    bench.step()
    bench.apply(cancel=((1, 1),))
    assert bench.loop.report().gauges.pages_cached == 1
    bench.apply(admit(2, range(20)))
    assert bench.loop.plan().slices[0].start == 4


def test_a_cancel_in_flight_keeps_the_pages_until_commit_and_drops_the_token() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5)), admit(2, range(5)))
    plan = bench.loop.plan()
    bench.apply(cancel=((1, 1),))
    assert bench.loop.report().gauges.pages_used == 4 and bench.loop.has_work
    report = bench.commit(plan)
    assert [outcome(result) for result in report.results] == [(2, 1, (TOKEN,), None)]
    assert (report.gauges.running, report.gauges.pages_used, report.gauges.pages_cached) == (1, 2, 1)


def test_a_yield_gives_back_at_once_or_at_commit_and_is_reported() -> None:
    bench = Bench(seats=2)
    bench.apply(admit(1, range(5)), admit(2, range(5)), admit(3, range(5)))
    plan = bench.loop.plan()
    bench.apply(give_back=((1, 1), (3, 1)))
    report = bench.loop.report()
    assert [outcome(result) for result in report.results] == [(3, 1, (), "yielded")], "it had no seat"
    assert report.gauges.running == 2
    report = bench.commit(plan)
    assert [outcome(result) for result in report.results] == [(1, 1, (), "yielded"), (2, 1, (TOKEN,), None)]
    assert report.results[0].computed == 5, "the work was done"
    assert report.gauges.running == 1


def test_a_cancel_after_a_yield_in_flight_wins() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5)))
    plan = bench.loop.plan()
    bench.apply(give_back=((1, 1),))
    bench.apply(cancel=((1, 1),))
    report = bench.commit(plan)
    assert report.results == () and report.gauges.stale_orders == 0


def test_orders_about_what_is_not_here_are_counted_and_ignored() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), attempt=2))
    bench.apply(cancel=((7, 1), (1, 1)), give_back=((7, 1), (1, 3)))
    assert bench.loop.report().gauges.stale_orders == 4
    assert bench.step().results[0].tokens == (TOKEN,)


def test_the_same_order_twice_in_flight_counts_once() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5)))
    plan = bench.loop.plan()
    bench.apply(cancel=((1, 1),))
    bench.apply(cancel=((1, 1),), give_back=((1, 1),))
    assert bench.commit(plan).gauges.stale_orders == 2


def test_cancel_comes_before_admit_in_the_same_orders() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5)))
    bench.apply(admit(1, range(6), attempt=2), cancel=((1, 1),))
    (piece,) = bench.loop.plan().slices
    assert (piece.seq, piece.attempt, len(piece.tokens)) == (1, 2, 6)


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_later_attempt_replaces_an_earlier_one_and_an_earlier_one_is_stale(in_flight: bool) -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), attempt=2))
    plan = bench.loop.plan() if in_flight else None
    bench.apply(admit(1, range(7), attempt=3), admit(1, range(9), attempt=1), admit(1, range(9), attempt=3))
    assert bench.loop.report().gauges.stale_orders == 2
    if plan:
        assert bench.commit(plan).results == ()
    report = bench.step()
    assert [outcome(result) for result in report.results] == [(1, 3, (TOKEN,), None)]
    assert report.gauges.running == 1


def test_a_preempted_sequence_leaves_with_the_next_report_and_may_come_again() -> None:
    bench = Bench(pages=4, seats=2)
    bench.apply(admit(1, range(7)), admit(2, range(10, 17)))
    bench.step()
    bench.step()
    report = bench.step()
    assert [outcome(result) for result in report.results] == [(2, 1, (), "preempted"), (1, 1, (TOKEN,), None)]
    assert report.gauges.preemptions == 1 and report.headroom.queued == 0
    bench.apply(admit(2, [*range(10, 17), TOKEN, TOKEN], attempt=2, prompt_len=7))
    assert [piece.seq for piece in bench.loop.plan().slices] == [1], "it waits until there is room"


def test_headroom_counts_what_waits_here_without_a_seat() -> None:
    bench = Bench(seats=1)
    bench.apply(admit(1, range(4)), admit(2, range(5)), admit(3, range(8)))
    report = bench.step()
    assert report.headroom.seats == 1 - 3 and report.headroom.queued == 2
    assert report.headroom.pages == 16 - 2 - (2 + 3)
    assert (report.gauges.running, report.gauges.waiting, report.gauges.pages_used) == (1, 2, 2)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (admit(1, range(40)), "40 tokens leave no room"),
        (admit(1, range(6), attempt=2, prompt_len=3, max_tokens=3), "nothing to draw"),
        (admit(1, range(3), prompt_len=4), "nothing to draw"),
        (admit(1, ()), "nothing to draw"),
    ],
)
def test_what_can_never_run_is_refused_and_stalls_nobody(bad: Admit, says: str) -> None:
    bench = Bench()
    bench.apply(bad, admit(2, range(3)))
    report = bench.step()
    assert [(result.seq, result.outcome) for result in report.results] == [(1, "error"), (2, None)]
    assert says in (report.results[0].error or "")


def test_a_failed_step_ends_its_own_sequences_and_names_none_of_their_pages() -> None:
    bench = Bench(seats=3)
    bench.apply(*(admit(seq, range(9)) for seq in (1, 2, 3, 4)))
    plan = bench.loop.plan()
    bench.apply(cancel=((2, 1),), give_back=((3, 1),))
    report = bench.loop.fail(plan, "the device is gone")
    bench.loop.check()
    assert [outcome(result) for result in report.results] == [(1, 1, (), "error"), (3, 1, (), "yielded")]
    assert report.results[0].error == "the device is gone" and report.results[1].error is None
    assert report.gauges.pages_used == report.gauges.pages_cached == 0
    (piece,) = bench.loop.plan().slices
    assert (piece.seq, piece.start) == (4, 0)


def test_the_step_record_tells_the_plan_and_the_times() -> None:
    bench = Bench(chunk=4)
    bench.apply(admit(1, range(3)))
    bench.step()
    bench.apply(admit(2, range(10, 16)))
    plan = bench.loop.plan()
    report = bench.loop.commit(plan, StepOutput((TOKEN,)), run_seconds=0.5, plan_seconds=0.001)
    step = report.step
    assert step is not None and step.number == 2
    assert [(s.seq, s.attempt, s.start, s.length, s.decode) for s in step.slices] == [
        (1, 1, 3, 1, True),
        (2, 1, 0, plan.slices[1].end, False),
    ]
    assert (step.decode_tokens, step.prompt_tokens) == (1, plan.slices[1].end)
    assert (step.modelled, step.decode_only, step.target) == (plan.modelled, plan.decode_only, plan.target)
    assert (step.run_seconds, step.plan_seconds, step.coefficients) == (0.5, 0.001, PRIOR)
    assert report.coefficients == bench.model.coefficients != PRIOR, "the step's time was learned"


def test_reports_carry_each_result_once_and_the_last_orders_number() -> None:
    bench = Bench(seats=1)
    bench.apply(admit(1, range(3)), admit(2, range(3)))
    bench.step()
    bench.apply(give_back=((2, 1),))
    assert [outcome(result) for result in bench.loop.report().results] == [(2, 1, (), "yielded")]
    report = bench.loop.report()
    assert report.results == () and report.orders == 2


def test_a_step_is_committed_before_the_next_is_planned_and_only_once() -> None:
    bench = Bench()
    bench.apply(admit(1, range(3)))
    plan = bench.loop.plan()
    with pytest.raises(AssertionError, match="not committed"):
        bench.loop.plan()
    bench.commit(plan)
    with pytest.raises(AssertionError, match="not in flight"):
        bench.commit(plan)


def test_a_token_for_each_slice_that_samples_and_no_more() -> None:
    bench = Bench()
    bench.apply(admit(1, range(3)))
    plan = bench.loop.plan()
    with pytest.raises(AssertionError, match="one token for each"):
        bench.commit(plan, 1, 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_prompt_gets_on_beside_a_stream_on_a_machine_that_others_slow_down(seed: int) -> None:
    """Ten times slower for a while, again and again, and steps of two lengths: what was learned must survive that."""
    bench, pick, slow = Bench(step_tokens=512, pages=1000, chunk=512, context=4000), random.Random(seed), 1.0
    bench.apply(admit(1, range(4), max_tokens=3900))
    for _ in range(4):
        bench.commit(bench.loop.plan(), seconds=0.035)
    bench.apply(admit(2, range(3000), max_tokens=1))
    steps = ended = 0
    while not ended:
        slow = pick.choices((1.0, 10.0), (0.98, 0.02) if slow == 1.0 else (0.06, 0.94))[0]
        plan = bench.loop.plan()
        true = 0.03 + sum(0.001 + 0.003 * len(piece.tokens) for piece in plan.slices)
        report = bench.commit(plan, seconds=true * slow * pick.choice((1.0, 1.0, 2.2)) * pick.lognormvariate(0.0, 0.1))
        ended = sum(result.seq == 2 and result.outcome is not None for result in report.results)
        steps += 1
    assert steps < 600, "about 200 would do if all were known"


def test_a_step_that_is_abandoned_leaves_its_tokens_pending() -> None:
    bench = Bench()
    bench.apply(admit(1, [5, 6, 7]), admit(2, [8, 9]))
    plan = bench.loop.plan()
    bench.apply(cancel=((2, 1),))
    bench.loop.abandon(plan)
    bench.loop.check()
    again = bench.loop.plan()
    assert [(piece.seq, piece.start, piece.tokens) for piece in again.slices] == [(1, 0, (5, 6, 7))]


def said(token: int) -> TokenLogprobs:
    return TokenLogprobs((token,), (-1.0,), 1)


def test_log_probabilities_go_to_who_drew_the_token() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), logprobs=0), admit(2, range(5)), admit(3, range(5), logprobs=0))
    results = bench.answer(StepOutput((7, 8, 9), (said(7), None, said(9)))).results
    assert [result.logprobs for result in results] == [(said(7),), (), (said(9),)]


def test_a_token_without_the_log_probabilities_that_were_asked_for_is_a_bug() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), logprobs=0))
    plan = bench.loop.plan()
    with pytest.raises(AssertionError, match="asked for"):
        bench.loop.commit(plan, StepOutput((7,)), run_seconds=0.0)


def test_what_is_not_finite_has_no_log_probabilities() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), logprobs=0))
    (result,) = bench.answer(StepOutput((NOT_FINITE,), (None,))).results
    assert (result.outcome, result.logprobs) == ("error", ())


def test_prompt_log_probabilities_are_told_with_the_position_they_begin_at() -> None:
    bench = Bench(chunk=3)
    bench.apply(admit(1, range(5), prompt_logprobs=0, max_tokens=0))
    (first,) = bench.answer(StepOutput((), (), ((said(1), said(2), said(3)),))).results
    assert (first.prompt_from, first.prompt_logprobs, first.outcome) == (1, (said(1), said(2), said(3)), None)
    report = bench.answer(StepOutput((), (), ((said(4),),)))
    (last,) = report.results
    assert (last.prompt_from, last.prompt_logprobs, last.outcome) == (4, (said(4),), "length")
    assert (last.tokens, last.computed, report.gauges.running) == ((), 2, 0)


def test_a_target_without_its_log_probability_is_a_bug() -> None:
    bench = Bench()
    bench.apply(admit(1, range(5), prompt_logprobs=0))
    plan = bench.loop.plan()
    with pytest.raises(AssertionError, match="each target"):
        bench.loop.commit(plan, StepOutput((7,), (), ((said(1),),)), run_seconds=0.0)


def test_a_prompt_that_tells_its_log_probabilities_is_computed_though_it_is_cached() -> None:
    bench = Bench()
    bench.apply(admit(1, range(9), max_tokens=1))
    bench.step()
    bench.apply(admit(2, range(9), max_tokens=0, prompt_logprobs=0))
    assert bench.loop.plan().slices[0].targets == tuple(range(1, 9))


def test_a_sequence_that_outgrows_longropes_edge_is_given_back_with_its_token() -> None:
    bench = Bench(rope_edge=6, rope_switches=True)
    bench.apply(admit(1, range(5)))
    assert outcome(bench.step().results[0]) == (1, 1, (TOKEN,), None), "as long as the edge"
    report = bench.step()
    assert outcome(report.results[0]) == (1, 1, (TOKEN,), "preempted")
    assert (report.gauges.running, report.gauges.pages_used, report.gauges.preemptions) == (0, 0, 1)
    bench.apply(admit(1, [*range(5), TOKEN, TOKEN], attempt=2, prompt_len=5))
    (piece,) = bench.loop.plan().slices
    assert (piece.start, piece.stretch) == (0, 7), "no page of the shorter one is found"


def test_an_answer_that_ends_past_the_edge_just_ends() -> None:
    bench = Bench(rope_edge=5, rope_switches=True)
    bench.apply(admit(1, range(5), max_tokens=1))
    assert outcome(bench.step().results[0]) == (1, 1, (TOKEN,), "length")


def test_dynamic_scaling_gives_nothing_back() -> None:
    bench = Bench(rope_edge=5)
    bench.apply(admit(1, range(5)))
    assert [bench.step().results[0].outcome for _ in range(3)] == [None] * 3


def test_orders_that_come_twice_change_nothing_also_after_their_sequence_has_ended() -> None:
    bench = Bench()
    orders = Orders(1, admit=(admit(1, range(3), max_tokens=1),))
    bench.loop.apply(orders)
    bench.step()
    bench.loop.apply(orders)
    bench.loop.check()
    assert not bench.loop.has_work and bench.loop.report().gauges.stale_orders == 1
