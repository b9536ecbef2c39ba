"""Who runs in the next step, and with how many tokens: decodes first, then prompts under a modelled cost.

The plan-then-commit of vLLM V1's unified scheduler, with the prompt part of a step set by what decodes can bear
(Sarathi-Serve, arXiv 2403.02310). It decides in lists and integers; it knows no tokens' meaning and runs nothing.
"""

from bisect import bisect_left, insort
from collections import Counter, deque
from dataclasses import dataclass, field
from operator import attrgetter

from .cost import TOLD_COST, Features, StepModel
from .padding import Padding
from .pages import PagePool
from .plan import Slice
from .prefix import PrefixCache
from .prompt_shares import Key, Want, part_tokens
from .rope_lengths import RopeLengths
from .sequence import Sequence
from .settings import StepSettings
from .slices import decode_slice, prompt_slice

# A step beside decodes may cost this many times what they cost alone; or so many times while it takes no longer than
# people notice, SOON seconds: the more tokens at once, the less each costs.
AUTO_TARGET = 2.5
SOON_TARGET, SOON = 3.0, 0.05
# Where the target leaves less, prompts still get this many tokens a step in all, so that none starves. An automatic
# target can nearly always be met, so one token suffices; a fixed one may be less than the decodes cost alone.
AUTO_FLOOR = 1
PROMPT_FLOOR = 8
# A prompt so long that reading its own beginning costs what the target leaves would crawl: after so many turns beside
# decodes it gets at least this part of itself in each, so that no prompt takes more than twice as many.
PATIENCE = 512
# After so many steps with prompts beside decodes comes one without: steps of one shape cannot tell the two costs apart.
CONTROL_EVERY = 16

_age = attrgetter("age")
_rank = attrgetter("rank")
_tier = attrgetter("tier")


def auto_target(alone: float) -> float:
    """Seconds that a step may cost whose decodes cost `alone` seconds."""
    return max(AUTO_TARGET * alone, min(SOON_TARGET * alone, SOON))


class StepBudget:
    """What is left of one step: tokens, and modelled seconds beside its decodes."""

    def __init__(self, settings: StepSettings, model: StepModel, decodes: Features) -> None:
        self._settings = settings
        self._model = model
        self._tokens = settings.step_tokens - decodes.sequences
        self._floor = AUTO_FLOOR if settings.inter_token_target is None else PROMPT_FLOOR
        self.features = decodes
        self.decode_only = model.cost(decodes) if decodes.sequences else 0.0
        self.target = self._target()

    def _target(self) -> float:
        """Seconds the step may cost; 0 without a limit: nothing decodes, or chunks are fixed."""
        if not self.features.sequences or self._settings.deterministic:
            return 0.0
        fixed = self._settings.inter_token_target
        return auto_target(self.decode_only) if fixed is None else fixed

    def grant(self, start: int, pending: int, least: int = 0, *, tells: bool = False) -> int:
        """Prompt tokens that a slice from `start` may have, of `pending`; 0 if it must wait for another step.

        least: so many even where the target leaves fewer. tells: with their log probabilities.
        """
        chunk = self._settings.chunk
        if self._settings.deterministic:
            whole = min(pending, chunk - start % chunk)
            return whole if whole <= self._tokens else 0
        left = -(-self._tokens // TOLD_COST) if tells else self._tokens  # so that no step takes much longer for it
        most = min(pending, chunk, left)
        if not self.target or most <= 0:
            return most
        allowance = self._model.allowance(self.target, self.features, start, tells=tells)
        return min(most, max(allowance, self._floor, least))

    def left(self, start: int) -> int:
        """Prompt tokens that are left for all, the first of them from `start`."""
        if not self.target:
            return self._tokens
        return min(self._tokens, max(self._model.allowance(self.target, self.features, start), self._floor))

    def spend(self, start: int, length: int, *, tells: bool = False) -> None:
        """Take a prompt slice out of the budget."""
        assert 0 < length <= self._tokens, f"{length} tokens of {self._tokens}"
        self._tokens -= length
        self._floor = max(self._floor - length, 0)
        self.features = self.features.plus_prompt(start, length, tells=tells)


@dataclass(slots=True)
class Draft:
    """A step as decided: slices, their sequences in the same order, and who lost seat and pages for it.

    short: somebody needed a page that was not free, so nobody is seated. padding: as in StepPlan; `features` count it.
    """

    slices: list[Slice] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    short: bool = False
    padding: list[Slice] = field(default_factory=list)
    features: Features = field(default_factory=Features)
    modelled: float = 0.0
    decode_only: float = 0.0
    target: float = 0.0

    def add(self, sequence: Sequence, piece: Slice) -> None:
        """Let a sequence compute a slice in this step."""
        self.slices.append(piece)
        self.sequences.append(sequence)


class Scheduler:
    """Owner of the seats: `running`, the oldest first, and `waiting`, first in first out."""

    def __init__(self, settings: StepSettings, model: StepModel, pool: PagePool, cache: PrefixCache) -> None:
        assert settings.step_tokens >= settings.seats, "every running sequence needs one token a step"
        beside = settings.seats - 1 if settings.deterministic else 0
        assert settings.step_tokens >= settings.chunk + beside or not settings.deterministic, "no chunk fits a step"
        self._settings = settings
        self._context = min(settings.context, settings.pool_tokens)
        self._model = model
        self._pool = pool
        self._cache = cache
        self._rope = RopeLengths(settings.rope_edge, settings.rope_switches)
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self._free_seats = list(range(settings.seats - 1, -1, -1))
        self._padding = Padding(settings.page_size, settings.chunk) if settings.padded else None
        self._mixed = 0  # steps in a row with prompts beside decodes

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for a seat."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out wherever it is; its pages are free or cached afterwards.

        One that steps under way compute keeps seat and pages, and is to be taken out again when the last has landed.
        """
        if sequence.in_flight:
            sequence.state = "ended"
            return
        if sequence.state == "waiting":
            self.waiting.remove(sequence)
        else:
            place = bisect_left(self.running, sequence.age, key=_age)
            assert self.running[place] is sequence, f"sequence {sequence.seq} is not running"
            del self.running[place]
            self._free_seats.append(sequence.seat)
            sequence.seat = -1
        self._pool.release(sequence.pages)
        sequence.state = "gone"

    def need(self, sequence: Sequence) -> int:
        """Pages for all tokens known and one more, without prefix hits."""
        return self._pool.needed(len(sequence.tokens) + 1)

    def plan(self) -> Draft:
        """Decide the next step. Seats newcomers and preempts; computes nothing."""
        draft = Draft()
        if self._settings.static and not self.running:
            self._seat_batch()
        decodes = self._grow_decodes(draft)
        for sequence in decodes:
            draft.add(sequence, decode_slice(sequence, self._rope.stretch(sequence)))
        context = sum([piece.start for piece in draft.slices]) + len(decodes)
        rows = len(decodes)
        if self._padding and decodes:
            draft.padding = self._padding.ended(self.running)
            rows += len(draft.padding)
            context += sum(piece.end for piece in draft.padding)
        budget = StepBudget(self._settings, self._model, Features(0, rows, context))
        if not self._is_control(budget):
            self._fill(draft, budget)
            prompts = sorted([s for s in self.running if not s.decodes and self._goes_on(s)], key=_rank)
            parts = self._prompt_parts(draft, budget, prompts)
            self._continue_prompts(draft, budget, prompts, parts)
            if not draft.short and not self._settings.static:
                self._seat_newcomers(draft, budget, parts)
        self._mixed = self._mixed + 1 if budget.target and budget.features.prompt else 0
        draft.features = budget.features
        draft.modelled = self._model.cost(budget.features) if draft.slices else 0.0
        draft.decode_only, draft.target = budget.decode_only, budget.target
        return draft

    def _fill(self, draft: Draft, budget: StepBudget) -> None:
        """Fill shorter prompts up before any is computed to its end; a token is left for those, so that they run."""
        while self._padding and (piece := self._padding.fill(budget.left(0) - 1)):
            budget.spend(piece.start, len(piece.tokens))
            draft.padding.append(piece)

    def _is_control(self, budget: StepBudget) -> bool:
        """Whether this step leaves prompts out, to show what the decodes cost alone: see CONTROL_EVERY."""
        return budget.target > 0.0 and self._mixed >= CONTROL_EVERY

    def _grow_decodes(self, draft: Draft) -> list[Sequence]:
        """Those that decode, each with the page its token needs; some may be preempted for it.

        No slice is made yet, so none is taken back.
        """
        page_size = self._pool.page_size
        decodes = [s for s in self.running if s.decodes and (not s.in_flight or self._goes_on(s))]
        for sequence in decodes:
            if sequence.computed + sequence.flying == len(sequence.pages) * page_size:
                self._grow(draft, sequence)
        return [s for s in decodes if self._has_room(s)] if draft.short else decodes

    def _goes_on(self, sequence: Sequence) -> bool:
        """Whether another slice of it is to be planned, by all that is known while steps are under way."""
        if not sequence.in_flight:
            return True
        if sequence.leaving or sequence.state == "ended" or not sequence.pending:
            return False
        length = sequence.length
        ends = sequence.is_whole(length, self._context) or self._rope.outgrown(sequence, length)
        return not (sequence.awaited and ends)

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether its next token has a page and it is to be computed: it may have been preempted."""
        pages = len(sequence.pages) * self._pool.page_size
        return sequence.state == "running" and not sequence.leaving and sequence.planned < pages

    def _grow(self, draft: Draft, sequence: Sequence) -> None:
        """One page more, preempting where none is left, until the sequence itself is: it may have been already.

        Whoever is computed just now keeps its pages until the commit, and until then nobody else is preempted.
        """
        while sequence.state == "running" and not self._pool.can_allocate(1):
            draft.short = True
            if not all(map(self._goes_on, self.running)):
                return
            victim = self._victim()
            if victim.in_flight:
                victim.leaving = "preempted"
            else:
                self.remove(victim)
                draft.preempted.append(victim)
        if sequence.state == "running" and not sequence.leaving:
            self._pool.allocate(sequence.pages, 1)

    def _victim(self) -> Sequence:
        """Who loses seat and pages, whoever is in need: the last by rank of the tenant that holds most for its weight.

        Of the lowest tier, and never the oldest running one, so that one always gets on.
        """
        others = self.running[1:]
        assert others, "the pool cannot hold one sequence"
        lowest = max(sequence.tier for sequence in others)
        pages: Counter[str] = Counter()
        for sequence in self.running:
            if sequence.tier == lowest:
                pages[sequence.tenant] += len(sequence.pages)
        return max(
            (sequence for sequence in others if sequence.tier == lowest),
            key=lambda sequence: (pages[sequence.tenant] / sequence.weight, sequence.rank),
        )

    def _prompt_parts(self, draft: Draft, budget: StepBudget, prompts: list[Sequence]) -> dict[Key, int]:
        """The most prompt tokens for each tenant in this step; nothing where there is nobody to share with.

        Fixed chunks are never cut. Newcomers count as far as they could be seated.
        """
        sharing = [*prompts, *(self._comers() if not draft.short and not self._settings.static else ())]
        if self._settings.deterministic or len({(s.tier, s.tenant) for s in sharing}) < 2:
            return {}
        chunk = self._settings.chunk
        wants = (Want(s.tier, s.tenant, s.weight, min(s.pending, chunk)) for s in sharing)
        return part_tokens(budget.left(sharing[0].planned), wants)

    def _comers(self) -> list[Sequence]:
        """Those in front of `waiting` that seats and pages hold, prefix hits not counted."""
        comers: list[Sequence] = []
        pages = 0
        for sequence in self.waiting:
            pages += self.need(sequence)
            if len(self.running) + len(comers) == self._settings.seats or not self._pool.can_allocate(pages):
                break
            comers.append(sequence)
        return comers

    def _continue_prompts(
        self, draft: Draft, budget: StepBudget, prompts: list[Sequence], parts: dict[Key, int]
    ) -> None:
        """Prompts begun in earlier steps, by tier, priority and arrival. They have all their pages."""
        for sequence in prompts:
            least = -(-sequence.known // PATIENCE) if sequence.turns >= PATIENCE else 0
            tells = sequence.tells_prompt
            key = sequence.tier, sequence.tenant
            most = min(sequence.pending, parts.get(key, sequence.pending))
            length = budget.grant(sequence.planned, most, least, tells=tells) if most else 0
            if length > 0:
                if parts:
                    parts[key] -= length
                sequence.turns += budget.target > 0.0
                budget.spend(sequence.planned, length, tells=tells)
                draft.add(sequence, prompt_slice(sequence, length, self._rope.stretch(sequence)))

    def _seat_newcomers(self, draft: Draft, budget: StepBudget, parts: dict[Key, int]) -> None:
        """First in, first seated: with pages for all its known tokens and one more, and with a slice in this step.

        Where tenants share, higher tiers come first, and whose tenant's part is used up is passed over.
        """
        for sequence in sorted(self.waiting, key=_tier) if parts else list(self.waiting):
            if len(self.running) == self._settings.seats:
                break
            key = sequence.tier, sequence.tenant
            if parts and not parts.get(key):
                continue
            hits = self._cache.match(sequence)
            start = len(hits) * self._pool.page_size
            pending = len(sequence.tokens) - start
            length = budget.grant(start, min(pending, parts.get(key, pending)), tells=sequence.tells_prompt)
            fresh = self.need(sequence) - len(hits)
            if length <= 0 or not self._pool.can_allocate(fresh, sharing=hits):
                break
            self._seat(sequence, hits, fresh)
            if parts:
                parts[key] -= length
            budget.spend(start, length, tells=sequence.tells_prompt)
            draft.add(sequence, prompt_slice(sequence, length, self._rope.stretch(sequence)))

    def _seat_batch(self) -> None:
        """First in, first seated, as many as seats and pages hold; some may have to wait for their first slice."""
        while self.waiting and len(self.running) < self._settings.seats:
            hits = self._cache.match(self.waiting[0])
            fresh = self.need(self.waiting[0]) - len(hits)
            if not self._pool.can_allocate(fresh, sharing=hits):
                break
            self._seat(self.waiting[0], hits, fresh)
        if self._padding:
            self._padding.seat(self.running)

    def _seat(self, sequence: Sequence, hits: list[int], fresh: int) -> None:
        self.waiting.remove(sequence)
        self._cache.use(sequence, hits)
        self._pool.allocate(sequence.pages, fresh)
        sequence.state = "running"
        sequence.seat = self._free_seats.pop()
        insort(self.running, sequence, key=_age)

    def check(self) -> None:
        """Assert that seats and order are kept and that every sequence is where its state says."""
        assert len(self.running) <= self._settings.seats, "more sequences than seats"
        assert self.running == sorted(self.running, key=_age), "running sequences are not in order"
        assert all(s.state == "running" or (s.state == "ended" and s.in_flight) for s in self.running)
        assert all(sequence.state == "waiting" and not sequence.pages for sequence in self.waiting)
        for sequence in (*self.running, *self.waiting):
            sequence.check()
            self._cache.check(sequence)
            assert len(sequence.pages) >= self._pool.needed(sequence.planned), "computed tokens have no page"
        seats = [*self._free_seats, *(sequence.seat for sequence in self.running)]
        assert sorted(seats) == list(range(self._settings.seats)), "a seat is lost, or taken twice"
        self._pool.check(sequence.pages for sequence in self.running)
