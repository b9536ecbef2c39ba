"""A fake device: it computes steps in the order of their launch, feeds tokens back itself, and answers a step late."""

from dataclasses import dataclass, field

from fairstep.stepping.plan import AWAITED, Slice, StepOutput, StepPlan
from fakes_stepping import mix
from fakes_text import EOS
from fakes_worker import LETTERS

EMPTY = 0  # the chain of no tokens


@dataclass
class LateHandle:
    """A step under way. `answered` is how many steps had been launched when its tokens were taken."""

    runner: "LateRunner"
    number: int
    output: StepOutput
    fails: bool = False

    def result(self) -> StepOutput:
        self.runner.answered[self.number] = len(self.runner.plans)
        if self.fails:
            raise RuntimeError("the device gave up")
        return self.output


@dataclass
class LateRunner:
    """A stepping.plan.Runner over slots that hold a chain of all tokens up to them; a token is a function of the chain.

    Some are EOS, so that answers end where nobody expects it. fails: numbers of plans that fail when they are waited
    for, refuses: of plans whose launch fails.
    """

    page_size: int = 4
    fails: tuple[int, ...] = ()
    refuses: tuple[int, ...] = ()
    plans: list[StepPlan] = field(default_factory=list)
    answered: dict[int, int] = field(default_factory=dict)
    _slots: dict[int, int] = field(default_factory=dict)
    _newest: dict[int, int] = field(default_factory=dict)  # by seat, what the step before drew

    def launch(self, plan: StepPlan) -> LateHandle:
        if plan.number in self.refuses:
            raise RuntimeError("the device takes nothing")
        self._check_seats(plan)
        self.plans.append(plan)
        drawn = [self._compute(piece) for piece in plan.slices]
        self._newest = {piece.seat: token for piece, token in zip(plan.slices, drawn, strict=True) if token is not None}
        output = StepOutput(tuple(token for token in drawn if token is not None))
        return LateHandle(self, len(self.plans), output, plan.number in self.fails)

    @property
    def late(self) -> int:
        """Steps whose tokens were taken after the next step had been launched."""
        return sum(launched > number for number, launched in self.answered.items())

    @property
    def awaited(self) -> int:
        return sum(piece.awaits for plan in self.plans for piece in plan.slices)

    def _check_seats(self, plan: StepPlan) -> None:
        """No seat changes hands while a step under way computes who had it."""
        for number, under_way in enumerate(self.plans, 1):
            held = {s.seat: (s.seq, s.attempt) for s in under_way.slices if number not in self.answered}
            for piece in plan.slices:
                owner = piece.seq, piece.attempt
                assert held.get(piece.seat, owner) == owner, f"seat {piece.seat} is taken while a step touches it"

    def _compute(self, piece: Slice) -> int | None:
        tokens = (self._newest[piece.seat],) if piece.awaits else piece.tokens
        assert AWAITED not in tokens
        chain = self._slots[self._slot(piece, piece.start - 1)] if piece.start else EMPTY
        for position, token in enumerate(tokens, piece.start):
            chain = self._slots[self._slot(piece, position)] = mix(chain, token)
        return drawn_after(chain) if piece.samples else None

    def _slot(self, piece: Slice, position: int) -> int:
        return piece.pages[position // self.page_size] * self.page_size + position % self.page_size


def drawn_after(chain: int) -> int:
    """A letter, or now and then the end."""
    place = (chain >> 40) % (LETTERS + 1)
    return EOS if place == LETTERS else ord("a") + place


def answer_alone(prompt: list[int], count: int) -> list[int]:
    """What a prompt is answered, EOS included: the tokens by themselves, without pages and steps."""
    chain, answer = EMPTY, list[int]()
    for token in prompt:
        chain = mix(chain, token)
    while len(answer) < count and EOS not in answer:
        answer.append(drawn_after(chain))
        chain = mix(chain, answer[-1])
    return answer
