"""The worker's progress on one attempt of a request: tokens known, tokens computed, pages held. Knows no policy.

No phases: a step gives a sequence tokens until what is computed catches up with what is known.
"""

from typing import Literal

from ..door import Admit, Outcome, Sampling
from .plan import Slice

State = Literal["waiting", "running", "ended", "gone"]
Leaving = Literal["cancelled", "yielded", "preempted"]


class Sequence:
    """One attempt. The PagePool alone writes `pages`, the Scheduler `state` and `seat`, the StepLoop the rest.

    tokens: the prompt, outputs of earlier attempts, then what this attempt drew. known: their number at admission.
    page_table: `pages` as they were when a slice was last made; pages are only ever added to an attempt's.
    computed: how many tokens have keys and values in `pages`. named: how many full pages the prefix cache was offered;
    digests: their chained hashes, kept so that nothing is hashed twice. hits: tokens found in the prefix cache.
    turns: steps that gave it prompt tokens beside decodes.
    in_flight: how many steps under way compute a slice of it; flying: how many tokens those compute; awaited: how many
    they draw, which nobody knows yet. Until they have landed it keeps seat and pages.
    leaving: it was cancelled, yielded or preempted meanwhile, gets no more slices and goes at commit.
    state: `ended` is one that ended while later steps compute it: they are dropped.
    draws: it may draw a token at all; otherwise its prompt alone is computed. tells_prompt: log probabilities of its
    prompt are asked for, so that all of it must be computed. remembers: what it draws depends on all tokens so far.
    decodes: its next slice is a decode, as this attempt has drawn or draws a token, so exactly that one is pending.
    What was known at admission is prompt work, also its last token and also after a preemption.
    """

    __slots__ = (
        "age",
        "attempt",
        "awaited",
        "computed",
        "decodes",
        "digests",
        "draws",
        "flying",
        "group",
        "hits",
        "in_flight",
        "known",
        "leaving",
        "named",
        "page_table",
        "pages",
        "prompt_len",
        "rank",
        "remembers",
        "salt",
        "sampling",
        "seat",
        "seq",
        "state",
        "tells_prompt",
        "tenant",
        "tier",
        "tokens",
        "turns",
        "weight",
    )

    def __init__(self, admit: Admit) -> None:
        self.seq: int = admit.seq
        self.attempt: int = admit.attempt
        self.tokens: list[int] = list(admit.tokens)
        self.prompt_len: int = admit.prompt_len
        self.known: int = len(admit.tokens)
        self.sampling: Sampling = admit.sampling
        self.tenant: str = admit.tenant
        self.tier: int = admit.tier
        self.weight: int = admit.weight
        self.salt: str = admit.salt
        self.group: int = admit.group
        self.age = (admit.order, admit.seq)  # the smallest is the oldest
        self.rank = (admit.tier, admit.priority, admit.order, admit.seq)  # the smallest is served first
        self.draws = admit.sampling.max_tokens > 0
        self.tells_prompt = admit.sampling.prompt_logprobs >= 0
        self.remembers = admit.sampling.needs_history
        self.decodes = False
        self.computed = 0
        self.hits = 0
        self.pages: list[int] = []
        self.page_table: tuple[int, ...] = ()
        self.digests: list[bytes] = []
        self.named = 0
        self.turns = 0
        self.state: State = "waiting"
        self.seat = -1
        self.in_flight = 0
        self.flying = 0
        self.awaited = 0
        self.leaving: Leaving | None = None

    @property
    def planned(self) -> int:
        """Tokens computed once the steps under way have landed: where the next slice begins."""
        return self.computed + self.flying

    @property
    def length(self) -> int:
        """Tokens known once the steps under way have landed."""
        return len(self.tokens) + self.awaited

    @property
    def pending(self) -> int:
        """Tokens that another slice may compute."""
        return self.length - self.planned

    @property
    def outputs(self) -> int:
        """Tokens drawn for the request, over all attempts."""
        return len(self.tokens) - self.prompt_len

    def take(self, token: int, context: int) -> Outcome | None:
        """Append a drawn token; how that ends the sequence, or None.

        A stop id ends it unless fewer than min_tokens were drawn before it; stop wins over length.
        """
        self.tokens.append(token)
        self.decodes = True
        if token in self.sampling.stop_ids and self.outputs > self.sampling.min_tokens:
            return "stop"
        return "length" if self.is_whole(len(self.tokens), context) else None

    def is_whole(self, length: int, context: int) -> bool:
        """Whether it draws nothing more once it has so many tokens."""
        return length - self.prompt_len >= self.sampling.max_tokens or length >= context

    def depart(self, piece: Slice) -> None:
        """A slice of it was planned."""
        self.in_flight += 1
        self.flying += len(piece.tokens)
        if piece.samples:
            self.awaited += 1
            self.decodes = True

    def land(self, piece: Slice) -> None:
        """The oldest slice of it under way is over; what it computed and drew is not taken in yet."""
        self.in_flight -= 1
        self.flying -= len(piece.tokens)
        self.awaited -= piece.samples

    def call_back(self, piece: Slice) -> None:
        """The newest slice of it under way is not computed after all."""
        self.land(piece)
        self.decodes = self.length > self.known

    def check(self) -> None:
        """Assert the counts' own rules."""
        assert 0 <= self.computed < len(self.tokens) or self.state == "ended", f"sequence {self.seq}: nothing pending"
        assert 1 <= self.prompt_len <= self.known <= len(self.tokens)
        assert self.page_table == tuple(self.pages[: len(self.page_table)]), f"sequence {self.seq}: pages changed"
        if self.state in ("waiting", "running") and not self.leaving:
            assert self.decodes == (self.length > self.known), f"sequence {self.seq}: decodes, or it does not"
            assert self.pending == 1 or not self.decodes, f"sequence {self.seq}: drew a token before it caught up"
        seated = self.state in ("running", "ended")
        assert seated or not self.pages, f"sequence {self.seq} is {self.state} and holds pages"
        assert seated == (self.seat >= 0), f"sequence {self.seq} is {self.state}, seat {self.seat}"
        assert seated or not self.in_flight, f"sequence {self.seq} is {self.state} and in flight"
        landed = not (self.flying or self.awaited or self.leaving or self.state == "ended")
        assert self.in_flight or landed, f"sequence {self.seq} has landed and does not go on"
