"""What stands around a StepLoop in tests: settings, admissions, a runner that models what is in every KV slot, and a
front that keeps its own books and checks every plan and every Report against them."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from msgspec.structs import replace

from fairstep.door import Admit, Orders, Report, Result, Sampling, TokenLogprobs
from fairstep.stepping.cost import Features, StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import AWAITED, NOT_FINITE, Slice, StepOutput, StepPlan
from fairstep.stepping.scheduler import AUTO_FLOOR, PROMPT_FLOOR, auto_target
from fairstep.stepping.settings import StepSettings

VOCAB = 7
GARBAGE = -1  # in a slot: what a failed step left there


def settings(**changes: object) -> StepSettings:
    """Four seats, 16 pages of 4 tokens, context 40, whole prompts a step, unless changed."""
    values = {"step_tokens": 64, "seats": 4, "pages": 16, "page_size": 4, "chunk": 64, "context": 40, **changes}
    return StepSettings(**values)  # type: ignore[arg-type]


def admit(seq: int, tokens: Iterable[int], *, attempt: int = 1, prompt_len: int | None = None, **more: object) -> Admit:
    """An Admit whose order is its seq; `more` may hold its fields and those of Sampling."""
    known = tuple(tokens)
    sampling = {name: more.pop(name) for name in Sampling.__struct_fields__ if name in more}
    more.setdefault("order", seq)
    prompt = len(known) if prompt_len is None else prompt_len
    return Admit(seq, attempt, known, prompt, Sampling(**sampling), **more)  # type: ignore[arg-type]


def mix(state: int, token: int) -> int:
    """The next link of a chain: what a slot holds depends on every token up to it."""
    return (state * 6364136223846793005 + token + 1442695040888963407) % 2**64


@dataclass
class Ask:
    """A request in the front's books. `chain[i]` is what the slot of tokens[i - 1] must hold."""

    seq: int
    prompt: tuple[int, ...]
    sampling: Sampling
    salt: str = ""
    tier: int = 0
    priority: int = 0
    not_finite_at: int | None = None  # the output that is not finite
    leader: int | None = None  # whose sibling it is
    group: int = 0
    attempt: int = 1
    state: str = "waiting"  # following (its leader is not there yet), waiting (at the front), sent, ended
    seated: bool = False
    known: int = 0  # tokens when it was sent
    sent_group: int = 0
    sent_sampling: Sampling = field(default_factory=Sampling)
    computed: int = 0  # tokens of this attempt with keys and values
    returning: bool = False  # its yield was ordered and is not reported yet
    counted: int = 0  # tokens of this attempt told as cached, computed or recomputed
    outcome: str | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    chain: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chain.append(crc32(self.salt.encode()))
        for token in self.prompt:
            self.add(token)

    def add(self, token: int) -> None:
        self.tokens.append(token)
        self.chain.append(mix(self.chain[-1], token))

    @property
    def outputs(self) -> tuple[int, ...]:
        return tuple(self.tokens[len(self.prompt) :])

    def next_token(self) -> int:
        """The model: a pure function of everything known."""
        return self.token_after(self.chain[-1], len(self.outputs))

    def token_after(self, chain: int, position: int) -> int:
        """The output number `position`, where everything before it makes `chain`."""
        return NOT_FINITE if position == self.not_finite_at else (chain >> 40) % VOCAB

    def logprobs_at(self, position: int) -> TokenLogprobs:
        """What the model says of the token at a position: a function of everything up to it."""
        return TokenLogprobs((self.tokens[position],), (-(self.chain[position + 1] % 1000) / 100,), 1)

    @property
    def next_sampling(self) -> Sampling:
        """As the front sends it: the prompt's log probabilities are asked for until all have come."""
        complete = len(self.prompt_logprobs) == len(self.prompt) - 1
        return replace(self.sampling, prompt_logprobs=-1) if complete else self.sampling

    def admission(self) -> Admit:
        return Admit(
            self.seq,
            self.attempt,
            tuple(self.tokens),
            len(self.prompt),
            self.next_sampling,
            order=self.seq,
            tier=self.tier,
            priority=self.priority,
            salt=self.salt,
            group=self.group,
        )


def control(ask: Ask, context: int) -> tuple[tuple[int, ...], str]:
    """The same request alone, without pages, steps and other people: its outputs and how it ends."""
    alone = Ask(ask.seq, ask.prompt, ask.sampling, ask.salt, not_finite_at=ask.not_finite_at)
    if not ask.sampling.max_tokens:
        return (), "length" if ask.not_finite_at is None else "error"
    while True:
        token = alone.next_token()
        if token == NOT_FINITE:
            return alone.outputs, "error"
        stops = token in ask.sampling.stop_ids and len(alone.outputs) >= ask.sampling.min_tokens
        alone.add(token)
        if stops:
            return alone.outputs, "stop"
        if len(alone.outputs) >= ask.sampling.max_tokens or len(alone.tokens) >= context:
            return alone.outputs, "length"


class SlotRunner:
    """Computes plans on slots: checks every slot that a slice reads before it writes its own.

    A slot holds the token's chain and the length that its key was turned for (0 below the edge). A token that a slice
    awaits is the one drawn for its seat by the plan before.
    """

    def __init__(self, own: StepSettings, asks: dict[int, Ask]) -> None:
        self._own = own
        self._asks = asks
        self._slots: dict[int, tuple[int, int]] = {}
        self._drawn: dict[int, tuple[int, int, int]] = {}  # seat to sequence, attempt and token, by the plan before

    def launch(self, plan: StepPlan) -> StepOutput:
        for piece in plan.slices:
            self._read(piece)
        drawn = [self._write(piece) for piece in plan.slices]
        self._drawn = {
            piece.seat: (piece.seq, piece.attempt, token)
            for piece, token in zip(plan.slices, drawn, strict=True)
            if token is not None
        }
        tokens = [token for token in drawn if token is not None]
        logprobs = [
            self._logprobs(piece, token) for token, piece in zip(drawn, plan.slices, strict=True) if token is not None
        ]
        prompts = tuple(self._prompt_logprobs(piece) for piece in plan.slices)
        return StepOutput(tuple(tokens), tuple(logprobs) if any(logprobs) else (), prompts if any(prompts) else ())

    def spoil(self, plan: StepPlan) -> None:
        """The step failed: nobody knows what is in the slots it wrote."""
        for piece in plan.slices:
            for position in range(piece.start, piece.end):
                self._slots[self._slot(piece, position)] = GARBAGE, 0

    def poison(self, pages: Iterable[int]) -> None:
        """Nothing may be read from these pages before it is written."""
        size = self._own.page_size
        for page in pages:
            for slot in range(page * size, (page + 1) * size):
                self._slots[slot] = GARBAGE, 0

    def _slot(self, piece: Slice, position: int) -> int:
        page = piece.pages[position // self._own.page_size]
        assert 1 <= page <= self._own.pages, f"sequence {piece.seq} maps page {page}"
        return page * self._own.page_size + position % self._own.page_size

    def _read(self, piece: Slice) -> None:
        ask = self._asks[piece.seq]
        if piece.awaits:
            assert piece.tokens == (AWAITED,) and piece.start == len(ask.tokens) and piece.samples and piece.decode
            assert self._drawn[piece.seat][:2] == (piece.seq, piece.attempt), "nothing was drawn for this seat"
        else:
            assert piece.tokens == tuple(ask.tokens[piece.start : piece.end]), "a slice holds other tokens"
            assert piece.samples == (piece.end == len(ask.tokens) and ask.sampling.max_tokens > 0)
        remembers = piece.samples and ask.sampling.needs_history
        assert (piece.known, piece.prompt_len) == ((tuple(ask.tokens), len(ask.prompt)) if remembers else ((), 0))
        asked = piece.sampling.prompt_logprobs >= 0
        assert piece.targets == (ask.prompt[piece.start + 1 : piece.end + 1] if asked else ())
        if piece.awaits and self._drawn[piece.seat][2] == NOT_FINITE:
            return  # what came before is garbage, and so will this be
        for position in range(piece.start):
            found = self._slots.get(self._slot(piece, position))
            right = ask.chain[position + 1], self._right_length(ask, position)
            assert found == right, f"sequence {piece.seq} reads a wrong slot at {position}"

    def _write(self, piece: Slice) -> int | None:
        """The token drawn, or None for a slice that doesn't sample."""
        ask = self._asks[piece.seq]
        fed = (self._drawn[piece.seat][2],) if piece.awaits else piece.tokens
        chain = self._slots[self._slot(piece, piece.start - 1)][0] if piece.start else ask.chain[0]
        chains = [chain := mix(chain, token) for token in fed]
        token = ask.token_after(chain, piece.position) if piece.samples else None
        for position in range(piece.start, piece.end):
            length = self._scaled(max(position + 1, piece.stretch))
            assert length == self._right_length(ask, position), f"sequence {piece.seq} is turned wrongly at {position}"
            chain = GARBAGE if token == NOT_FINITE else chains[position - piece.start]
            self._slots[self._slot(piece, position)] = chain, length
        return token

    def _right_length(self, ask: Ask, position: int) -> int:
        """What transformers' generate() turns a key for: a rule of whole sequences, without steps and attempts."""
        if self._own.rope_switches:
            return self._scaled(len(ask.tokens))
        return self._scaled(max(position + 1, len(ask.prompt)))

    def _scaled(self, length: int) -> int:
        """0 below the edge; past it longrope turns all lengths alike, dynamic each in its own way."""
        if not self._own.rope_edge or length <= self._own.rope_edge:
            return 0
        return 1 if self._own.rope_switches else length

    def _logprobs(self, piece: Slice, token: int) -> TokenLogprobs | None:
        if token == NOT_FINITE or piece.sampling.logprobs < 0:
            return None
        chain, _ = self._slots[self._slot(piece, piece.end - 1)]
        return TokenLogprobs((token,), (-(mix(chain, token) % 1000) / 100,), 1)

    def _prompt_logprobs(self, piece: Slice) -> tuple[TokenLogprobs, ...]:
        ask = self._asks[piece.seq]
        return tuple(ask.logprobs_at(piece.start + 1 + place) for place in range(len(piece.targets)))


class Touched:
    """Pages that steps under way touch: what one sequence writes no other may touch."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._steps: deque[list[tuple[tuple[int, int], set[int], set[int]]]] = deque()

    def begin(self, plan: StepPlan) -> None:
        """A step is launched. Its own sequences write no page that another of them touches."""
        step = [((piece.seq, piece.attempt), *self._pages(piece)) for piece in plan.slices]
        for owner, touched, written in step:
            for other, others, theirs in [*step, *(each for under_way in self._steps for each in under_way)]:
                if other != owner:
                    shared = (written & others) | (touched & theirs)
                    assert not shared, f"pages {shared} of sequence {other[0]} are used anew while a step touches them"
        self._steps.append(step)

    def land(self) -> None:
        """The oldest step is over."""
        self._steps.popleft()

    def check_free(self, pages: Iterable[int]) -> None:
        """None of these pages is touched by a step under way."""
        touched = {page for step in self._steps for _, pages_of_slice, _ in step for page in pages_of_slice}
        assert touched.isdisjoint(pages), "a page is free while a step touches it"

    def _pages(self, piece: Slice) -> tuple[set[int], set[int]]:
        """Those that a slice reads or writes, and those that it writes."""
        first, last = piece.start // self._page_size, (piece.end - 1) // self._page_size
        return set(piece.pages[: last + 1]), set(piece.pages[first : last + 1])


class Books:
    """A front that knows what must be true: sends Orders, runs steps, checks plans and Reports.

    Where the loop plans ahead, so does this: a step's output is known once the next step was launched.
    """

    def __init__(self, own: StepSettings) -> None:
        self.own = own
        self.context = min(own.context, own.pool_tokens)
        self.model = StepModel()
        self.loop = StepLoop(own, self.model)
        self.asks: dict[int, Ask] = {}
        self.runner = SlotRunner(own, self.asks)
        self.under_way: deque[tuple[StepPlan, StepOutput]] = deque()
        self.dropped = 0  # tokens computed for what had ended
        self.awaited = 0  # slices whose token nobody knew when they were planned
        self._touched = Touched(own.page_size)
        self.plans: list[StepPlan] = []
        self.reported: Report | None = None
        self.ends = 0
        self.shared = 0  # siblings that found their leader's pages
        self._not_finite = False  # somebody's pages were forgotten
        self._newcomers: list[int] = []  # seated by the step
        self.orders = 0
        self._stale = 0

    def submit(self, prompt: Sequence[int], **more: object) -> Ask:
        sampling = Sampling(**{name: more.pop(name) for name in Sampling.__struct_fields__ if name in more})  # type: ignore[arg-type]
        ask = Ask(len(self.asks) + 1, tuple(prompt), sampling, **more)  # type: ignore[arg-type]
        if ask.leader is not None:
            leader = self.asks[ask.leader]
            ask.group = leader.group = leader.group or leader.seq
        self.asks[ask.seq] = ask
        return ask

    def follow(self, leader: Ask, **more: object) -> Ask:
        """A sibling that waits for its leader's first token, or its end."""
        more = {"salt": leader.salt, "tier": leader.tier, "priority": leader.priority, **more}
        ask = self.submit(leader.prompt, leader=leader.seq, **more)
        if leader.state != "ended" and not leader.outputs:
            ask.state = "following"
        return ask

    def leave(self, ask: Ask) -> None:
        """Cancel a request that the worker has not got."""
        assert ask.state in ("waiting", "following")
        self._end(ask, "cancelled")

    def having(self, state: str) -> list[Ask]:
        return [ask for ask in self.asks.values() if ask.state == state]

    def order(self, *, cancel: Iterable[Ask] = (), give_back: Iterable[Ask] = (), send: Iterable[Ask] = ()) -> None:
        """Send Orders. Cancelled requests have ended at once for their caller, wherever they are."""
        gone = tuple((ask.seq, ask.attempt) for ask in cancel)
        back = tuple((ask.seq, ask.attempt) for ask in give_back)
        for ask in cancel:
            self._end(ask, "cancelled")
        for ask in give_back:
            ask.returning = True
        for ask in send:
            assert ask.state == "waiting"
            ask.state, ask.seated, ask.returning, ask.counted = "sent", False, False, 0
            ask.known, ask.computed = len(ask.tokens), 0
            ask.sent_sampling, ask.sent_group = ask.next_sampling, ask.group
        self.raw_orders(Orders(self.orders + 1, gone, back, tuple(ask.admission() for ask in send)))

    def raw_orders(self, orders: Orders) -> None:
        self.orders = orders.number
        self.loop.apply(orders)
        self.loop.check()

    def step(self, meanwhile: Callable[[], None] | None = None, *, seconds: float = 0.0, fails: bool = False) -> bool:
        """One step, with Orders coming in meanwhile; False when nothing could run."""
        while self.loop.can_plan and self._launch():
            pass
        if not self.under_way:
            self.take(self.loop.report())
            return False
        plan, output = self.under_way[0]
        if meanwhile:
            meanwhile()
        self.under_way.popleft()
        self._touched.land()
        for ask, piece in self._asking(plan):
            ask.computed = piece.end
        if fails:
            self.runner.spoil(plan)
            self._take_failure(plan)
        else:
            report = self.loop.commit(plan, output, run_seconds=seconds)
            assert report.step is not None
            self.dropped += report.step.dropped
            self.take(report)
        free = self.loop._pool._free
        self._touched.check_free(free)
        self.runner.poison(free)
        return True

    def _launch(self) -> bool:
        """Plan and launch a step; False when nothing can run."""
        had_work, nothing_runs = self.loop.has_work, not self.under_way
        oldest = min((ask.seq for ask in self.having("sent") if ask.seated), default=None)
        self._newcomers.clear()
        preempted = self._preempted()
        plan = self.loop.plan()
        preempted = self._preempted() - preempted
        self.loop.check()
        if nothing_runs:
            assert bool(plan.slices) == had_work, "there is work and nothing runs, or the other way round"
        if plan.slices:
            self._check_plan(plan)
            self._touched.begin(plan)
            self.under_way.append((plan, self.runner.launch(plan)))
        assert oldest not in preempted, "the oldest running sequence was preempted"
        assert not (preempted and self._newcomers), "a newcomer was seated in a step that preempted"
        return bool(plan.slices)

    def _preempted(self) -> set[int]:
        """Who was, and is not told yet."""
        told = {result.seq for result in self.loop._results if result.outcome == "preempted"}
        return told | {held.seq for held in self.loop._held.values() if held.leaving == "preempted"}

    def _asking(self, plan: StepPlan) -> list[tuple[Ask, Slice]]:
        """A plan's slices with their requests, as far as these still ask for them."""
        pairs = [(self.asks[piece.seq], piece) for piece in plan.slices]
        return [(ask, piece) for ask, piece in pairs if ask.state == "sent" and ask.attempt == piece.attempt]

    def _lingering(self) -> int:
        """Sequences that nobody asks for any more and that steps under way still compute."""
        computed = {(piece.seq, piece.attempt) for plan, _ in self.under_way for piece in plan.slices}
        asked = {(ask.seq, ask.attempt) for plan, _ in self.under_way for ask, _ in self._asking(plan)}
        return len(computed - asked)

    def _take_failure(self, plan: StepPlan) -> None:
        for ask, _ in self._asking(plan):
            if not ask.returning:
                ask.not_finite_at = len(ask.outputs)  # for the control: it ends here
        self.take(self.loop.fail(plan, "the step failed"))

    def _check_plan(self, plan: StepPlan) -> None:
        self.plans.append(plan)
        kinds = [piece.decode for piece in plan.slices]
        assert kinds == sorted(kinds, reverse=True), "decodes come first"
        assert len({piece.seq for piece in plan.slices}) == len(plan.slices) <= self.own.seats
        assert sum(len(piece.tokens) for piece in plan.slices) <= self.own.step_tokens
        for piece in plan.slices:
            self._check_slice(piece)
        self._check_cost(plan)

    def _check_slice(self, piece: Slice) -> None:
        ask = self.asks[piece.seq]
        assert piece.attempt == ask.attempt and ask.state == "sent", "a slice for a sequence that has left"
        assert 1 <= len(piece.tokens) <= (1 if piece.decode else self.own.chunk)
        assert len(piece.pages) * self.own.page_size >= piece.end and len(set(piece.pages)) == len(piece.pages)
        assert not ask.returning, "a slice for a sequence that is to be given back"
        assert piece.position == len(ask.outputs) + piece.awaits and piece.sampling == ask.sent_sampling
        assert piece.position < max(1, piece.sampling.max_tokens) and piece.end < self.context, "it was known to end"
        self.awaited += piece.awaits
        if self.own.deterministic and not piece.decode:
            assert piece.end % self.own.chunk == 0 or piece.end == len(ask.tokens), "a chunk is cut elsewhere"
        if not ask.seated:
            self._newcomers.append(ask.seq)
            self._check_shared(piece, ask)
        ask.seated = True

    def _check_shared(self, piece: Slice, ask: Ask) -> None:
        """A sibling begins behind the prompt pages that its leader holds."""
        leader = self.asks[ask.leader] if ask.leader is not None else None
        size = self.own.page_size
        full = (len(ask.prompt) - 1) // size * size
        if leader is None or leader.state != "sent" or leader.computed < full or piece.sampling.prompt_logprobs >= 0:
            return
        alike = not self.own.rope_switches or (leader.known > self.own.rope_edge) == (ask.known > self.own.rope_edge)
        # a second copy of a page has no name: the leader's must be the only one
        copies = [other for other in self.asks.values() if other.tokens[:size] == ask.tokens[:size]]
        named = leader.attempt == 1 and all(other.group == ask.group for other in copies)
        named = named and (self.own.prefix_cache or leader.sent_group != 0)
        if alike and named and not self._not_finite:
            assert piece.start >= full, "a sibling computes what its leader holds"
            self.shared += full > 0

    def _check_cost(self, plan: StepPlan) -> None:
        decodes = [piece for piece in plan.slices if piece.decode]
        prompts = [piece for piece in plan.slices if not piece.decode]
        alone = Features(0, len(decodes), sum(piece.end for piece in decodes))
        tokens = sum(len(piece.tokens) for piece in prompts)
        told = sum(len(piece.tokens) for piece in prompts if piece.sampling.prompt_logprobs >= 0)
        whole = Features(tokens, len(plan.slices), sum(piece.end for piece in plan.slices), told)
        assert plan.modelled == self.model.cost(whole)
        if not decodes:
            assert plan.decode_only == plan.target == 0.0
        else:
            assert plan.decode_only == self.model.cost(alone)
            self._check_target(plan, tokens)

    def _check_target(self, plan: StepPlan, prompt_tokens: int) -> None:
        if self.own.deterministic:
            assert plan.target == 0.0
            return
        fixed = self.own.inter_token_target
        assert plan.target == (auto_target(plan.decode_only) if fixed is None else fixed)
        floor = AUTO_FLOOR if fixed is None else PROMPT_FLOOR
        assert plan.modelled <= plan.target or prompt_tokens <= floor, "the prompt part is over the target"

    def take(self, report: Report) -> None:
        """Enter a Report in the books and compare its numbers with them."""
        assert report.orders == self.orders
        for result in report.results:
            self._take_result(self.asks[result.seq], result)
        sent, lingering = self.having("sent"), self._lingering()
        waiting = [ask for ask in sent if not ask.seated]
        need = sum(-(-(len(ask.tokens) + 1) // self.own.page_size) for ask in waiting)
        gauges, headroom = report.gauges, report.headroom
        assert headroom.seats == self.own.seats - len(sent) - lingering
        assert headroom.queued == gauges.waiting == len(waiting)
        assert gauges.running == len(sent) - len(waiting) + lingering
        assert headroom.pages == self.own.pages - gauges.pages_used - need
        assert gauges.pages_used + gauges.pages_cached <= gauges.pages_total == self.own.pages
        alone = not any(ask.group for ask in self.asks.values())
        assert self.own.prefix_cache or not alone or gauges.prefix_hits == gauges.pages_cached == 0
        self.reported = report
        self.loop.check()

    def _take_result(self, ask: Ask, result: Result) -> None:
        if result.attempt != ask.attempt or ask.state != "sent":
            assert not result.tokens and result.outcome in ("yielded", "preempted"), "a result for what has left"
            return
        ask.counted += result.cached + result.computed + result.recomputed
        assert ask.attempt > 1 or not result.recomputed
        assert self.own.prefix_cache or ask.group or not result.cached
        assert ask.sent_sampling.prompt_logprobs < 0 or not result.cached, "a cached prompt has no log probabilities"
        again = len(ask.prompt_logprobs) + 1 - result.prompt_from
        assert again >= 0 or not result.prompt_logprobs, "log probabilities of the prompt were left out"
        ask.prompt_logprobs += result.prompt_logprobs[max(again, 0) :]
        ask.logprobs += result.logprobs
        for token in result.tokens:
            ask.add(token)
        outgrown = self.own.rope_switches and ask.known <= self.own.rope_edge < len(ask.tokens)
        if result.outcome == "preempted" and result.tokens and not self.own.ahead:
            assert outgrown, "a preempted sequence drew a token"
        if result.tokens:
            self._let_in(ask)
        if result.outcome in ("yielded", "preempted"):
            ask.state, ask.attempt = "waiting", ask.attempt + 1
        elif result.outcome is not None:
            self._finish(ask, result)
        else:
            assert not outgrown, "it goes on with keys that are turned for less"

    def _let_in(self, leader: Ask) -> None:
        """Its siblings may be sent."""
        for ask in self.having("following"):
            if ask.leader == leader.seq:
                ask.state = "waiting"

    def _finish(self, ask: Ask, result: Result) -> None:
        outputs, outcome = control(ask, self.context)
        assert (ask.outputs, result.outcome) == (outputs, outcome), "other people changed this answer"
        assert (result.stop_id is not None) == (outcome == "stop") and (result.error is not None) == (
            outcome == "error"
        )
        computed = len(ask.tokens) - (1 if ask.sampling.max_tokens else 0)
        assert outcome == "error" or ask.counted == computed, "tokens were computed twice or not at all"
        self._not_finite = self._not_finite or outcome == "error"
        if ask.sampling.logprobs >= 0:
            assert ask.logprobs == [ask.logprobs_at(n) for n in range(len(ask.prompt), len(ask.tokens))]
        if ask.sampling.prompt_logprobs >= 0 and outcome != "error":
            assert ask.prompt_logprobs == [ask.logprobs_at(n) for n in range(1, len(ask.prompt))]
        self._end(ask, outcome)

    def _end(self, ask: Ask, outcome: str) -> None:
        assert ask.state != "ended", "a request ends once"
        ask.state, ask.outcome = "ended", outcome
        self.ends += 1
        self._let_in(ask)

    def drain(self) -> None:
        """Send all that waits, as room is reported, and step until everything has ended; then nothing is held."""
        work = sum(len(ask.prompt) + self.context for ask in self.asks.values())
        for _ in range(4 * work * (len(self.asks) + 1) + 10):
            if not self.having("sent") and not self.having("waiting") and not self.under_way:
                break
            self._send_what_fits()
            self.step()
        self.take(self.loop.report())
        assert self.ends == len(self.asks), "the loop stalls"
        assert self.reported is not None and self.reported.gauges.pages_used == 0, "pages are lost"
        assert not self.loop.has_work

    def _send_what_fits(self) -> None:
        for ask in self.having("waiting"):
            self.take(self.loop.report())
            assert self.reported is not None
            room, need = self.reported.headroom, -(-(len(ask.tokens) + 1) // self.own.page_size)
            if room.seats < 1 or room.pages < need:
                break
            self.order(send=[ask])
