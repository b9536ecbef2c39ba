"""The worker's progress on one attempt of a request: tokens known, tokens computed, pages held. Knows no policy.

No phases: a step gives a sequence tokens until what is computed catches up with what is known.
"""

from typing import Literal

from ..door import Admit, Outcome, Sampling

State = Literal["waiting", "running", "gone"]


class Sequence:
    """One attempt. `pages` is written by the PagePool alone, `state` by the Scheduler, the rest by the StepLoop.

    tokens: the prompt, outputs of earlier attempts, then what this attempt drew. known: their number at admission.
    page_table: `pages` as they were when a slice was last made; pages are only ever added to an attempt's.
    computed: how many tokens have keys and values in `pages`. named: how many full pages the prefix cache was offered;
    digests: their chained hashes, kept so that nothing is hashed twice. hits: tokens found in the prefix cache.
    turns: steps that gave it prompt tokens beside decodes. in_flight: a slice of it is being computed.
    leaving: it was cancelled or yielded meanwhile and goes at commit.
    draws: it may draw a token at all; otherwise its prompt alone is computed. tells_prompt: log probabilities of its
    prompt are asked for, so that all of it must be computed. remembers: what it draws depends on all tokens so far.
    decodes: its next slice is a decode, as this attempt has drawn a token, so exactly that one is pending. What was
    known at admission is prompt work, also its last token and also after a preemption.
    """

    __slots__ = (
        "age",
        "attempt",
        "computed",
        "decodes",
        "digests",
        "draws",
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
        self.in_flight = False
        self.leaving: Literal["cancelled", "yielded"] | None = None

    @property
    def pending(self) -> int:
        """Tokens known and not yet computed."""
        return len(self.tokens) - self.computed

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
        sampling, outputs = self.sampling, len(self.tokens) - self.prompt_len
        if token in sampling.stop_ids and outputs > sampling.min_tokens:
            return "stop"
        if outputs >= sampling.max_tokens or len(self.tokens) >= context:
            return "length"
        return None

    def check(self) -> None:
        """Assert the counts' own rules."""
        assert 0 <= self.computed < len(self.tokens), f"sequence {self.seq}: nothing pending"
        assert 1 <= self.prompt_len <= self.known <= len(self.tokens)
        assert self.page_table == tuple(self.pages[: len(self.page_table)]), f"sequence {self.seq}: pages changed"
        assert self.decodes == (len(self.tokens) > self.known), f"sequence {self.seq}: decodes, or it does not"
        assert self.pending == 1 or not self.decodes, f"sequence {self.seq}: drew a token before it caught up"
        assert self.state == "running" or not self.pages, f"sequence {self.seq} is {self.state} and holds pages"
        assert self.state == "running" or not self.in_flight, f"sequence {self.seq} is {self.state} and in flight"
