"""A model without weights whose answers hang on every token that it reads through its pages, and on the seed.

`alone` says what a request gets on an idle engine without pages: whatever else runs, the answer must be that one.
"""

import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from fairstep.door import Sampling, TokenLogprobs
from fairstep.stepping.plan import Slice, StepOutput, StepPlan
from fakes_text import EOS
from fakes_worker import FakeHandle

LETTERS = 26


def draw(read: Sequence[int], sampling: Sampling, prompt_len: int) -> int:
    """The token after those read: a letter, or now and then EOS if that may end the answer."""
    state = crc32(array("q", read).tobytes())
    if sampling.temperature:
        state = crc32(array("Q", [sampling.seed, state]).tobytes())
    ends = EOS in sampling.stop_ids and len(read) - prompt_len >= sampling.min_tokens
    return EOS if ends and (state >> 16) % 16 == 0 else ord("a") + state % LETTERS


def alone(prompt: Sequence[int], sampling: Sampling) -> list[int]:
    """The answer to a request that nobody disturbs."""
    read = list(prompt)
    while len(read) - len(prompt) < sampling.max_tokens:
        read.append(draw(read, sampling, len(prompt)))
        if read[-1] in sampling.stop_ids and len(read) - len(prompt) > sampling.min_tokens:
            break
    return read[len(prompt) :]


def text_alone(prompt: Sequence[int], max_tokens: int, *, seed: int | None = None) -> str:
    """The text of a request that ignores EOS; greedy without a seed."""
    sampling = Sampling(temperature=0.0 if seed is None else 1.0, seed=seed or 0, max_tokens=max_tokens)
    return bytes(alone(prompt, sampling)).decode()


def logprob(read: Sequence[int]) -> float:
    """What the model says of the last token read: a function of all before it too."""
    return -(crc32(array("q", read).tobytes()) % 1000) / 100 - 0.01


@dataclass
class MemoryRunner:
    """Keeps tokens in the slots of pages and draws from what it reads back, as attention would.

    `before` runs before each step, on the worker's side. `plans` are those it was given.
    """

    page_size: int = 4
    before: Callable[[StepPlan], None] = lambda plan: None
    plans: list[StepPlan] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)

    def launch(self, plan: StepPlan) -> FakeHandle:
        self.before(plan)
        self.plans.append(plan)
        for piece in plan.slices:
            for position in range(piece.start, piece.end):
                self.slots[self._slot(piece, position)] = piece.tokens[position - piece.start]
        drawn = [(self._draw(piece), piece) for piece in plan.slices if piece.samples]
        told = tuple(
            TokenLogprobs((token,), (logprob([*self._read(piece), token]),), 1)
            if piece.sampling.logprobs >= 0
            else None
            for token, piece in drawn
        )
        return FakeHandle(StepOutput(tuple(token for token, _ in drawn), told, tuple(map(self._targets, plan.slices))))

    @property
    def prompt_tokens(self) -> int:
        """Computed so far: all but decodes."""
        return sum(len(piece.tokens) for plan in self.plans for piece in plan.slices if not piece.decode)

    def _slot(self, piece: Slice, position: int) -> int:
        return piece.pages[position // self.page_size] * self.page_size + position % self.page_size

    def _read(self, piece: Slice) -> list[int]:
        return [self.slots[self._slot(piece, position)] for position in range(piece.end)]

    def _draw(self, piece: Slice) -> int:
        return draw(self._read(piece), piece.sampling, piece.end - piece.position)

    def _targets(self, piece: Slice) -> tuple[TokenLogprobs, ...]:
        read = self._read(piece) if piece.targets else []
        return tuple(
            TokenLogprobs((token,), (logprob([*read[: piece.start + place + 1], token]),), 1)
            for place, token in enumerate(piece.targets)
        )


class Gate:
    """For `before`: lets `steps` steps pass, then holds the worker until it is opened."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, plan: StepPlan) -> None:
        self._left -= 1
        if self._left < 0:
            self.reached.set()
            assert self._open.wait(60), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()
