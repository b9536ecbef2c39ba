"""The slices that sequences get in a step: what a runner is told of each. Decides nothing."""

from .plan import AWAITED, Slice
from .sequence import Sequence


def decode_slice(sequence: Sequence, stretch: int) -> Slice:
    """The one token that a decode computes. Like prompt_slice(), less what can only be so: it runs for every token."""
    tokens, remembers, awaited = sequence.tokens, sequence.remembers, sequence.awaited
    return Slice(
        sequence.seq,
        sequence.attempt,
        sequence.computed + sequence.flying,
        (AWAITED if awaited else tokens[-1],),
        _page_table(sequence),
        True,
        len(tokens) + awaited - sequence.prompt_len,
        sequence.sampling,
        True,
        tuple(tokens) if remembers else (),
        sequence.prompt_len if remembers else 0,
        (),
        stretch,
        sequence.seat,
        awaited > 0,
    )


def prompt_slice(sequence: Sequence, length: int, stretch: int) -> Slice:
    """The next `length` tokens of what was known at admission. stretch: as in Slice."""
    start, known = sequence.planned, len(sequence.tokens)
    samples = start + length == known and sequence.draws
    remembers = samples and sequence.remembers
    targets = sequence.tokens[start + 1 : min(start + length + 1, sequence.prompt_len)]
    return Slice(
        seq=sequence.seq,
        attempt=sequence.attempt,
        start=start,
        tokens=tuple(sequence.tokens[start : start + length]),
        pages=_page_table(sequence),
        samples=samples,
        position=known - sequence.prompt_len,
        sampling=sequence.sampling,
        decode=False,
        known=tuple(sequence.tokens) if remembers else (),
        prompt_len=sequence.prompt_len if remembers else 0,
        targets=tuple(targets) if sequence.tells_prompt else (),
        stretch=stretch,
        seat=sequence.seat,
    )


def _page_table(sequence: Sequence) -> tuple[int, ...]:
    """Its pages: the tuple of the step before as long as no page was added, so that long tables aren't copied."""
    if len(sequence.page_table) != len(sequence.pages):
        sequence.page_table = tuple(sequence.pages)
    return sequence.page_table
