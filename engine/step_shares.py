"""Whose time a step's was: its modelled cost by slices, for a ledger that counts measured service. Pure."""

from .door import StepRecord

MICROS = 1e6


def micros_of(step: StepRecord) -> dict[tuple[int, int], int]:
    """Modelled microseconds of each slice, by sequence and attempt; the step's own cost is parted evenly."""
    of = step.coefficients
    even = of.base / max(1, len(step.slices)) + of.sequence
    return {
        (piece.seq, piece.attempt): round(
            MICROS * (even + of.context * (piece.start + piece.length) + of.prompt * piece.length * (not piece.decode))
        )
        for piece in step.slices
    }
