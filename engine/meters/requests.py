"""What is counted of requests, whosever they are. What comes with each token is counted in tenants.py."""

from ..request import FinishReason
from ..stats import RequestStats
from .histogram import REQUEST_TOKENS, Histogram, total
from .tenants import TenantMeters


class RequestMeter:
    """One engine's requests."""

    def __init__(self) -> None:
        self._ended: dict[FinishReason, int] = {"stop": 0, "length": 0, "cancelled": 0, "error": 0}
        self._whole, self._queue, self._decode, self._per_token = Histogram(), Histogram(), Histogram(), Histogram()
        self._prompt_size, self._answer_size = Histogram(REQUEST_TOKENS), Histogram(REQUEST_TOKENS)
        self._most_tokens = Histogram(REQUEST_TOKENS)
        self._prompt_tokens = 0
        self._replayed = 0

    def accepted(self, prompt_tokens: int, max_tokens: int) -> None:
        """A request was accepted; max_tokens is the most it may get."""
        self._prompt_tokens += prompt_tokens
        self._most_tokens.observe(max_tokens)

    def replayed(self) -> None:
        """A request was told another one's answer, by its idempotency key."""
        self._replayed += 1

    def queued(self, seconds: float) -> None:
        """A request was admitted for the first time, so long after its arrival."""
        self._queue.observe(seconds)

    def ended(
        self, reason: FinishReason, *, prompt_tokens: int, completion_tokens: int, seconds: float, decode_seconds: float
    ) -> None:
        """A request ended, whatever for: `seconds` after arrival, `decode_seconds` after its first token."""
        self._ended[reason] += 1
        self._whole.observe(seconds)
        self._prompt_size.observe(prompt_tokens)
        self._answer_size.observe(completion_tokens)
        if completion_tokens > 0:
            self._decode.observe(decode_seconds)
        if completion_tokens > 1:
            self._per_token.observe(decode_seconds / (completion_tokens - 1))

    def stats(self, tenants: TenantMeters) -> RequestStats:
        """As it is now. What comes with each token is counted by tenant alone, and added up here."""
        return RequestStats(
            ended=dict(self._ended),
            first_token=total(meter.first_token for meter in tenants),
            gap=total(meter.gap for meter in tenants),
            whole=self._whole.frozen(),
            queue=self._queue.frozen(),
            decode=self._decode.frozen(),
            per_token=self._per_token.frozen(),
            prompt_size=self._prompt_size.frozen(),
            answer_size=self._answer_size.frozen(),
            most_tokens=self._most_tokens.frozen(),
            prompt_tokens=self._prompt_tokens,
            output_tokens=sum(meter.outputs for meter in tenants),
            replayed=self._replayed,
        )
