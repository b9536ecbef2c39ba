"""What is counted of a worker's steps and of what came of them."""

from ..door import StepRecord
from ..stats import StepStats
from .histogram import STEP_SEQUENCES, STEP_TOKENS, Histogram


class StepMeter:
    """One worker's steps."""

    def __init__(self) -> None:
        self._tokens, self._prompt_tokens = Histogram(STEP_TOKENS), Histogram(STEP_TOKENS)
        self._decode_tokens, self._sequences = Histogram(STEP_TOKENS), Histogram(STEP_SEQUENCES)
        self._seconds = Histogram()
        self._preemptions = 0
        self._stale = 0
        self._dropped = 0
        self._looked_up = 0
        self._found = 0

    def step(self, record: StepRecord) -> None:
        """The worker made a step."""
        self._tokens.observe(record.prompt_tokens + record.decode_tokens)
        self._prompt_tokens.observe(record.prompt_tokens)
        self._decode_tokens.observe(record.decode_tokens)
        self._sequences.observe(len({(part.seq, part.attempt) for part in record.slices}))
        self._seconds.observe(record.plan_seconds + record.run_seconds)
        self._dropped += record.dropped

    def cached(self, tokens: int, looked_up: int) -> None:
        """A prompt of `looked_up` tokens met the prefix cache, which had `tokens` of them."""
        self._looked_up += looked_up
        self._found += tokens

    def preempted(self, count: int) -> None:
        """Sequences were preempted."""
        self._preemptions += count

    def stale(self, count: int) -> None:
        """Results were dropped as stale."""
        self._stale += count

    def stats(self) -> StepStats:
        """As it is now."""
        return StepStats(
            tokens=self._tokens.frozen(),
            prompt_tokens=self._prompt_tokens.frozen(),
            decode_tokens=self._decode_tokens.frozen(),
            sequences=self._sequences.frozen(),
            seconds=self._seconds.frozen(),
            preemptions=self._preemptions,
            stale_results=self._stale,
            dropped_tokens=self._dropped,
            prefix_looked_up=self._looked_up,
            prefix_found=self._found,
        )
