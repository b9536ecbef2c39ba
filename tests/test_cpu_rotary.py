"""Kept rotary tables are those made anew, to the last bit, also past what was kept and where lengths count."""

import torch

from fairstep.door import Sampling
from fairstep.model.batch import StepBatch
from fairstep.model.cpu_rotary import FIRST_POSITIONS, KeptRotary
from fairstep.model.rope import Rotary
from fairstep.model.spec import RopeSpec
from fairstep.stepping.plan import Slice

CPU = torch.device("cpu")
PAGE = 16


def batch(*ranges: tuple[int, int], stretch: int = 0) -> StepBatch:
    """Slices of positions [start, end)."""
    return StepBatch([part(start, end, stretch) for start, end in ranges], PAGE, CPU)


def part(start: int, end: int, stretch: int) -> Slice:
    pages = tuple(range(1, 1 + -(-end // PAGE)))
    return Slice(1, 1, start, (5,) * (end - start), pages, True, 0, Sampling(), False, stretch=stretch)


def check(rope: RopeSpec, *batches: StepBatch) -> None:
    rotary = Rotary(rope, 64, CPU)
    kept = KeptRotary(rotary)
    for each in batches:
        *tables, by_token = kept.table(each)
        for got, wanted in zip(tables, rotary.table(each.positions, each.lengths), strict=True):
            assert got.is_contiguous()
            assert torch.equal(got if by_token else got[each.positions], wanted)


def test_each_position_has_its_row() -> None:
    check(RopeSpec(theta=10_000.0), batch((0, 37), (5, 6), (1000, 1001)), batch((63, 64)))


def test_the_table_grows_with_the_longest_sequence() -> None:
    longest = FIRST_POSITIONS
    check(RopeSpec(theta=10_000.0), batch((longest - 1, longest)), batch((longest, longest + 1)), batch((0, 3)))
    check(RopeSpec(theta=500.0, rotated=0.5), batch((9 * longest, 9 * longest + 2)))


def test_what_hangs_on_lengths_is_made_anew() -> None:
    rope = RopeSpec(theta=10_000.0, kind="dynamic", factor=4.0, original_context=64)
    check(rope, batch((0, 70), stretch=70), batch((70, 71), (3, 4), stretch=90))
