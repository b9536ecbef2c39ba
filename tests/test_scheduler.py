"""scheduler.py: decodes first, prompts within budget and target, preemption by rank, first in first seated."""

import pytest

from fairstep.door import Coefficients
from fairstep.stepping.cost import TOLD_COST, Features, StepModel
from fairstep.stepping.pages import PagePool
from fairstep.stepping.prefix import PrefixCache
from fairstep.stepping.scheduler import (
    AUTO_FLOOR,
    AUTO_TARGET,
    CONTROL_EVERY,
    PATIENCE,
    PROMPT_FLOOR,
    Draft,
    Scheduler,
    StepBudget,
)
from fairstep.stepping.sequence import Sequence
from fakes_stepping import admit, settings

FREE = Coefficients(base=1.0, prompt=0.0, sequence=0.0, context=0.0)  # prompts cost nothing: no target binds
EVEN = Coefficients(base=1.0, prompt=0.25, sequence=0.5, context=0.0)


class Bench:
    """A Scheduler with its owners; run() plays the step that was planned and lets every sequence draw token 9."""

    def __init__(self, coefficients: Coefficients = FREE, **changes: object) -> None:
        self.own = settings(**changes)
        self.pool = PagePool(self.own.pages, self.own.page_size)
        self.cache = PrefixCache(self.pool, enabled=self.own.prefix_cache)
        self.model = StepModel(coefficients)
        self.scheduler = Scheduler(self.own, self.model, self.pool, self.cache)

    def add(self, seq: int, length: int, **more: object) -> Sequence:
        """A sequence whose prompt shares no page with others."""
        sequence = Sequence(admit(seq, [100 * seq + i for i in range(length)], **more))
        self.scheduler.add(sequence)
        return sequence

    def plan(self) -> Draft:
        draft = self.scheduler.plan()
        self.scheduler.check()
        return draft

    def run(self, steps: int = 1) -> Draft:
        for _ in range(steps):
            draft = self.plan()
            self.play(draft)
        return draft

    def play(self, draft: Draft) -> None:
        for piece, sequence in zip(draft.slices, draft.sequences, strict=True):
            sequence.in_flight = False
            sequence.computed = piece.end
            self.cache.register(sequence)
            if piece.samples:
                sequence.take(9, context=10**6)


def lengths(draft: Draft) -> list[tuple[int, int]]:
    return [(piece.seq, len(piece.tokens)) for piece in draft.slices]


def test_a_prompt_that_fits_is_computed_in_one_step_and_then_decodes() -> None:
    bench = Bench()
    bench.add(1, 10)
    piece = bench.run().slices[0]
    assert (piece.start, piece.tokens, piece.samples, piece.decode, piece.position) == (
        0,
        tuple(range(100, 110)),
        True,
        False,
        0,
    )
    piece = bench.run().slices[0]
    assert (piece.start, piece.tokens, piece.samples, piece.decode, piece.position) == (10, (9,), True, True, 1)


def test_pages_for_all_known_tokens_and_one_more_are_taken_at_seating() -> None:
    bench = Bench(chunk=3)
    sequence = bench.add(1, 8)
    bench.run()
    assert len(sequence.pages) == 3 and sequence.computed == 3


def test_decodes_come_first_the_oldest_first_then_prompts() -> None:
    bench = Bench(chunk=4)
    for seq, order in ((1, 5), (2, 3)):
        bench.add(seq, 2, order=order)
    bench.run()
    bench.add(3, 12, order=1)
    assert lengths(bench.run()) == [(2, 1), (1, 1), (3, 4)]


def test_a_step_holds_no_more_tokens_than_its_budget() -> None:
    bench = Bench(step_tokens=8)
    bench.add(1, 3)
    bench.run()
    bench.add(2, 20)
    bench.add(3, 20)
    assert lengths(bench.run()) == [(1, 1), (2, 7)]


def test_a_sequence_gets_no_more_than_a_chunk() -> None:
    bench = Bench(chunk=5)
    bench.add(1, 12)
    bench.add(2, 12)
    assert lengths(bench.run()) == [(1, 5), (2, 5)]


def test_half_done_prompts_go_before_newcomers_by_tier_priority_and_arrival() -> None:
    bench = Bench(step_tokens=8, chunk=2, pages=64)
    bench.add(1, 9, tier=1)
    bench.add(2, 9, priority=1)
    bench.add(3, 9)
    bench.run()
    bench.add(4, 9, priority=-5)
    assert lengths(bench.run()) == [(3, 2), (2, 2), (1, 2), (4, 2)]
    assert lengths(bench.run()) == [(4, 2), (3, 2), (2, 2), (1, 2)]


def test_no_more_run_than_there_are_seats_and_the_head_waits_first() -> None:
    bench = Bench(seats=2)
    for seq in (1, 2, 3):
        bench.add(seq, 3)
    assert [seq for seq, _ in lengths(bench.run())] == [1, 2]
    bench.scheduler.remove(bench.scheduler.running[0])
    assert [seq for seq, _ in lengths(bench.run())] == [2, 3]


def test_nobody_jumps_a_head_that_does_not_fit() -> None:
    bench = Bench(pages=6)
    bench.add(1, 12)
    bench.run()
    bench.add(2, 12)
    bench.add(3, 1)
    assert lengths(bench.run()) == [(1, 1)]
    assert [sequence.seq for sequence in bench.scheduler.waiting] == [2, 3]


def test_a_newcomer_without_a_token_of_budget_is_not_seated() -> None:
    bench = Bench(step_tokens=4)
    bench.add(1, 4)
    bench.add(2, 4)
    bench.run()
    assert len(bench.scheduler.running) == 1 and not bench.scheduler.waiting[0].pages


def test_prefix_hits_are_shared_and_only_the_rest_is_computed() -> None:
    bench = Bench()
    first = bench.add(1, 9)
    bench.run()
    second = Sequence(admit(2, first.tokens[:9]))
    bench.scheduler.add(second)
    piece = bench.run().slices[-1]
    assert (piece.seq, piece.start, len(piece.tokens)) == (2, 8, 1)
    assert second.pages[:2] == first.pages[:2] and second.hits == 8


def test_cached_pages_that_a_newcomer_shares_are_not_counted_as_room_for_it() -> None:
    """Four pages, all cached: two are shared, two are left, three fresh ones are needed."""
    bench = Bench(pages=4)
    first = bench.add(1, 15)
    bench.run()
    bench.run()
    bench.scheduler.remove(first)
    other = bench.add(2, 3)
    bench.run()
    assert bench.pool.cached == 3
    again = Sequence(admit(3, first.tokens[:13]))
    bench.scheduler.add(again)
    assert bench.pool.available == 3 and len(bench.cache.match(again)) == 3
    assert [seq for seq, _ in lengths(bench.run())] == [2], "three hits and one fresh page do not fit three pages"
    bench.scheduler.remove(other)
    assert [seq for seq, _ in lengths(bench.run())] == [3]


def test_when_pages_run_out_the_last_of_the_lowest_tier_is_preempted_and_nobody_is_seated() -> None:
    bench = Bench(pages=6)
    for seq, more in ((1, {}), (2, {"tier": 1}), (3, {"priority": 1})):
        bench.add(seq, 7, **more)
    bench.run(steps=2)
    waiting = bench.add(4, 1)
    draft = bench.run()
    assert [sequence.seq for sequence in draft.preempted] == [2], "the lowest tier, though it is not the youngest"
    assert [seq for seq, _ in lengths(draft)] == [1, 3]
    assert waiting.state == "waiting" and draft.preempted[0].pages == []


def test_a_page_left_over_by_a_preemption_goes_to_a_newcomer_in_the_next_step_only() -> None:
    bench = Bench(pages=5)
    bench.add(1, 7)
    bench.add(2, 11)
    bench.run(steps=2)
    bench.add(3, 1)
    draft = bench.run()
    assert len(draft.preempted) == 1 and [seq for seq, _ in lengths(draft)] == [1]
    assert [seq for seq, _ in lengths(bench.run())] == [1, 3]


def test_who_needs_the_page_may_be_the_victim() -> None:
    bench = Bench(pages=4)
    bench.add(1, 7)
    bench.add(2, 7)
    bench.run()
    assert not bench.run().preempted
    draft = bench.run()
    assert [sequence.seq for sequence in draft.preempted] == [2]
    assert lengths(draft) == [(1, 1)]


def test_the_oldest_running_sequence_is_never_preempted_whatever_its_tier() -> None:
    bench = Bench(pages=4)
    bench.add(1, 7, tier=9)
    bench.add(2, 7, tier=0)
    bench.run(steps=2)
    assert [sequence.seq for sequence in bench.run().preempted] == [2]


def test_a_half_done_prompt_can_be_preempted_and_its_full_pages_stay_cached() -> None:
    bench = Bench(pages=6, chunk=5)
    bench.add(1, 7)
    bench.run(steps=2)
    half = bench.add(2, 15)
    bench.run()
    assert half.computed == 5 and half.state == "running"
    draft = bench.run()
    assert draft.preempted == [half] or bench.run().preempted == [half]
    assert bench.pool.find(half.digests[0]) is not None and half.pages == []


def test_without_decodes_there_is_no_target() -> None:
    bench = Bench(EVEN)
    bench.add(1, 30)
    draft = bench.run()
    assert lengths(draft) == [(1, 30)]
    assert (draft.decode_only, draft.target, draft.modelled) == (0.0, 0.0, 1.0 + 0.25 * 30 + 0.5)


def test_beside_decodes_the_step_costs_at_most_so_many_times_the_decodes() -> None:
    bench = Bench(EVEN)
    bench.add(1, 3)
    bench.run()
    bench.add(2, 30)
    draft = bench.run()
    # decodes cost 1.5, so 3.75 is the target: 1.75 is left for tokens of 0.25 after the slice's own 0.5
    assert lengths(draft) == [(1, 1), (2, 7)]
    assert (draft.decode_only, draft.target, draft.modelled) == (1.5, AUTO_TARGET * 1.5, 3.75)


def test_tokens_whose_log_probabilities_are_told_count_more_against_the_target() -> None:
    bench = Bench(EVEN)
    bench.add(1, 3)
    bench.run()
    bench.add(2, 30, prompt_logprobs=0)
    draft = bench.run()
    # of the 1.75 that the target leaves, such a token takes 4 times 0.25
    assert lengths(draft) == [(1, 1), (2, 1)] and draft.modelled == 1.0 + 2 * 0.5 + TOLD_COST * 0.25 <= draft.target


def test_a_step_without_decodes_holds_fewer_tokens_whose_log_probabilities_are_told() -> None:
    bench = Bench(step_tokens=16, chunk=16)
    bench.add(1, 10, prompt_logprobs=0)
    bench.add(2, 20)
    assert lengths(bench.run()) == [(1, 16 // TOLD_COST), (2, 16 - 16 // TOLD_COST)]


def test_a_fixed_target_holds_instead() -> None:
    bench = Bench(EVEN, inter_token_target=4.5)
    bench.add(1, 3)
    bench.run()
    bench.add(2, 30)
    draft = bench.run()
    assert lengths(draft) == [(1, 1), (2, 10)] and draft.target == 4.5 == draft.modelled


def test_several_prompts_share_what_the_target_leaves() -> None:
    bench = Bench(EVEN, inter_token_target=6.5, chunk=6, pages=64)
    bench.add(1, 3)
    bench.run()
    bench.add(2, 30)
    bench.add(3, 30)
    bench.add(4, 30)
    draft = bench.run()
    # 5 are left: 0.5 + 6 * 0.25, twice, then 0.5 + 2 * 0.25
    assert lengths(draft) == [(1, 1), (2, 6), (3, 6), (4, 2)] and draft.modelled == 6.5


def test_a_target_that_decodes_alone_miss_leaves_prompts_the_floor_in_all() -> None:
    bench = Bench(EVEN, inter_token_target=0.1, chunk=5, pages=64)
    bench.add(1, 3)
    bench.run()
    bench.add(2, 30)
    bench.add(3, 30)
    bench.add(4, 30)
    assert lengths(bench.run()) == [(1, 1), (2, 5), (3, PROMPT_FLOOR - 5)]


def test_under_an_automatic_target_the_floor_is_one_token() -> None:
    dear = Coefficients(base=1.0, prompt=100.0, sequence=0.0, context=0.0)
    bench = Bench(dear)
    bench.add(1, 3)
    bench.run()
    bench.add(2, 3)
    assert lengths(bench.run()) == [(1, 1), (2, AUTO_FLOOR)] and AUTO_FLOOR == 1


def test_a_prompt_that_crawls_is_hurried_after_so_many_turns() -> None:
    dear = Coefficients(base=1.0, prompt=0.0, sequence=0.0, context=1.0)  # reading its own beginning costs everything
    length = 3 * PATIENCE
    bench = Bench(dear, pages=2 * length, context=2 * length, step_tokens=length, chunk=length)
    bench.add(1, 1)
    bench.run()
    long = bench.add(2, length)
    steps = 0
    while not long.decodes:
        draft = bench.run()
        steps += sum(piece.seq == 2 for piece in draft.slices)
    assert PATIENCE < steps <= 2 * PATIENCE


def test_now_and_then_decodes_run_alone_so_that_their_cost_stays_known() -> None:
    bench = Bench(EVEN, pages=64, chunk=1)
    bench.add(1, 3)
    bench.run(steps=3)
    bench.add(2, 100)
    drafts = [bench.run() for _ in range(CONTROL_EVERY + 2)]
    assert [len(draft.slices) for draft in drafts] == [2] * CONTROL_EVERY + [1, 2]


def test_without_a_target_no_step_leaves_prompts_out() -> None:
    bench = Bench(EVEN, pages=64, chunk=1, deterministic=True)
    bench.add(1, 3)
    bench.run(steps=3)
    bench.add(2, 100)
    assert all(len(bench.run().slices) == 2 for _ in range(CONTROL_EVERY + 2))


def test_context_behind_a_prompt_slice_is_part_of_its_cost() -> None:
    far = Coefficients(base=1.0, prompt=0.0, sequence=0.0, context=0.01)
    own = settings(context=1000)
    budget = StepBudget(own, StepModel(far), Features(0, 1, 100))  # 2 seconds, so 5 is the target
    assert budget.grant(0, 60) == 60
    assert budget.grant(290, 60) == 10
    assert budget.grant(300, 60) == AUTO_FLOOR


def test_fixed_chunks_are_cut_at_multiples_whatever_else_runs() -> None:
    bench = Bench(EVEN, deterministic=True, chunk=4, step_tokens=7, pages=64)
    bench.add(1, 10)
    alone = [lengths(bench.run())[0] for _ in range(3)]
    assert alone == [(1, 4), (1, 4), (1, 2)]
    bench.add(2, 10)
    bench.add(3, 1)
    drafts = [bench.run() for _ in range(3)]
    assert [piece for draft in drafts for piece in lengths(draft) if piece[0] == 2] == [(2, 4), (2, 4), (2, 2)]
    assert all(draft.target == 0.0 for draft in drafts), "no target binds, as it would depend on others"


def test_fixed_chunks_start_at_prefix_hits_and_meet_the_next_multiple() -> None:
    bench = Bench(deterministic=True, chunk=6, step_tokens=20)
    first = bench.add(1, 9)
    bench.run(steps=2)
    second = Sequence(admit(2, [*first.tokens[:9], 7, 7, 7, 7]))
    bench.scheduler.add(second)
    piece = bench.run().slices[-1]
    assert (piece.start, piece.end) == (8, 12)


def test_a_fixed_chunk_runs_whole_or_waits_for_another_step() -> None:
    bench = Bench(deterministic=True, chunk=4, step_tokens=7, seats=4, pages=64)
    bench.add(1, 8)
    bench.add(2, 7)
    bench.add(3, 2)
    assert lengths(bench.run()) == [(1, 4)], "the head of the line waits, so nobody behind it is seated"
    assert lengths(bench.run()) == [(1, 4)]
    assert lengths(bench.run()) == [(1, 1), (2, 4), (3, 2)]
    assert lengths(bench.run()) == [(1, 1), (3, 1), (2, 3)]


@pytest.mark.parametrize("changes", [{"step_tokens": 3}, {"deterministic": True, "chunk": 62}])
def test_settings_under_which_a_step_could_not_hold_what_must_run_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        Bench(**changes)


def test_removing_a_sequence_frees_its_seat_and_pages_wherever_it_is() -> None:
    bench = Bench(seats=1)
    running, waiting = bench.add(1, 3), bench.add(2, 3)
    bench.run()
    for sequence in (waiting, running):
        bench.scheduler.remove(sequence)
        assert sequence.state == "gone" and sequence.pages == []
        bench.scheduler.check()
    assert bench.pool.held == 0


def test_a_sequence_being_computed_keeps_seat_and_pages_until_it_has_landed() -> None:
    bench = Bench()
    sequence = bench.add(1, 3)
    (piece,) = bench.plan().slices
    sequence.depart(piece)
    bench.scheduler.remove(sequence)
    assert (sequence.state, sequence.seat, len(sequence.pages)) == ("ended", 0, 1)
    assert not bench.plan().slices, "it gets no more"
    sequence.land(piece)
    bench.scheduler.remove(sequence)
    assert (sequence.state, sequence.seat, bench.pool.held) == ("gone", -1, 0)


def test_a_slice_that_draws_under_a_penalty_knows_the_history_and_no_other_does() -> None:
    bench = Bench(chunk=3)
    bench.add(1, 5, presence=1.0)
    bench.add(2, 5)
    first = bench.run()
    assert [(piece.known, piece.prompt_len) for piece in first.slices] == [((), 0), ((), 0)], "nothing is drawn yet"
    second = bench.run()
    assert [(piece.known, piece.prompt_len) for piece in second.slices] == [((100, 101, 102, 103, 104), 5), ((), 0)]
    third = bench.run()
    assert third.slices[0].known == (100, 101, 102, 103, 104, 9) and third.slices[0].prompt_len == 5


def test_targets_are_the_prompt_tokens_that_a_slice_predicts() -> None:
    bench = Bench(chunk=3)
    bench.add(1, 6, prompt_logprobs=0)
    assert [bench.run().slices[0].targets for _ in range(3)] == [(101, 102, 103), (104, 105), ()]


def test_a_sequence_of_no_tokens_never_samples() -> None:
    bench = Bench(chunk=3)
    bench.add(1, 5, max_tokens=0)
    assert [bench.plan().slices[0].samples] == [False]


def test_slices_carry_the_length_they_are_turned_for() -> None:
    bench = Bench(rope_edge=4)
    bench.add(1, 6)
    bench.add(2, 3)
    assert [piece.stretch for piece in bench.run().slices] == [6, 3]
    assert [piece.stretch for piece in bench.run().slices] == [6, 3], "the prompt's, also later"


def test_the_victim_is_the_youngest_of_the_tenant_that_holds_most_for_its_weight() -> None:
    bench = Bench(pages=8)
    for seq, tenant, weight in ((1, "a", 1), (2, "b", 4), (3, "b", 4), (4, "a", 1)):
        bench.add(seq, 7, tenant=tenant, weight=weight)
    bench.run(steps=2)
    assert [sequence.seq for sequence in bench.run().preempted][:1] == [4]
    bench = Bench(pages=8)
    for seq, tenant in ((1, "a"), (2, "b"), (3, "b"), (4, "c")):
        bench.add(seq, 7, tenant=tenant)
    bench.run(steps=2)
    assert [sequence.seq for sequence in bench.run().preempted][:1] == [3], "not the youngest of all"


def test_prompt_tokens_are_parted_by_weight_between_tenants_and_newcomers_count() -> None:
    bench = Bench(step_tokens=12, chunk=12, pages=64, context=400)
    bench.add(1, 60, tenant="a")
    assert lengths(bench.run()) == [(1, 12)]
    bench.add(2, 60, tenant="b", weight=2)
    assert lengths(bench.run()) == [(1, 4), (2, 8)]
    assert sorted(lengths(bench.run())) == [(1, 4), (2, 8)]
    bench.add(3, 6, tenant="c", tier=-1)
    assert sorted(lengths(bench.run())) == [(1, 2), (2, 4), (3, 6)], "a tier before theirs takes what it wants"


def test_a_newcomer_is_seated_past_those_whose_tenants_part_is_used_up() -> None:
    bench = Bench(step_tokens=8, chunk=8, pages=64)
    for seq, tenant in ((1, "a"), (2, "a"), (3, "a"), (4, "b")):
        bench.add(seq, 4, tenant=tenant)
    assert sorted(lengths(bench.run())) == [(1, 4), (4, 4)]
    assert sorted(lengths(bench.run())) == [(1, 1), (2, 4), (3, 2), (4, 1)]
