"""Slices of made-up sequences over several steps, for what turns plans into tensors."""

from collections.abc import Iterator, Sequence
from random import Random

from msgspec.structs import replace

from fairstep.door import Sampling
from fairstep.kernels.step_inputs import StepTensors
from fairstep.model.batch import StepBatch
from fairstep.stepping.plan import AWAITED, Slice


def random_steps(random: Random, *, seats: int, page_size: int, steps: int) -> Iterator[list[Slice]]:
    """Steps of sequences that take and leave seats, with chunks, decodes, targets, and pages ahead of need."""
    running: dict[int, Slice] = {}
    number = 0
    for _ in range(steps):
        for seat in range(seats):
            if seat not in running or random.random() < 0.15:
                number += 1
                running[seat] = Slice(number, 1, 0, (), (), False, 0, Sampling(), False, seat=seat)
        chosen = [seat for seat in running if random.random() < 0.8] or [0]
        random.shuffle(chosen)
        for seat in chosen:
            running[seat] = _next_slice(random, running[seat], page_size)
        yield [running[seat] for seat in chosen]


def _next_slice(random: Random, last: Slice, page_size: int) -> Slice:
    count = random.choice([1, 1, 1, 2, page_size, 3 * page_size + 1])
    start = last.end
    needed = -(-(start + count) // page_size) + random.choice([0, 0, 2])
    more = tuple(random.randrange(1, 500) for _ in range(needed - len(last.pages)))
    return replace(
        last,
        start=start,
        tokens=tuple(random.randrange(99) for _ in range(count)),
        pages=last.pages + more if more else last.pages,
        samples=random.random() < 0.7,
        targets=tuple(random.randrange(99) for _ in range(random.choice([0, 0, count]))),
        stretch=random.choice([0, 60]),
    )


def awaiting(piece: Slice) -> Slice:
    """The same slice of one token, before its token is known."""
    assert len(piece.tokens) == 1
    return replace(piece, tokens=(AWAITED,), awaits=True)


def assert_same(tensors: StepTensors, batch: StepBatch, slices: Sequence[Slice], page_size: int) -> None:
    """What a step's tensors hold of its real rows and slices is what StepBatch makes."""
    rows, count = len(batch.ids), len(slices)
    for part in ("ids", "positions", "lengths", "slots"):
        assert getattr(tensors, part)[:rows].tolist() == getattr(batch, part).tolist(), part
    assert tensors.cu_q[: count + 1].tolist() == [0, *(b.q_start + b.q_len for b in batch.bounds)]
    assert tensors.kv_len[:count].tolist() == [b.kv_len for b in batch.bounds]
    assert tensors.logit_rows[: len(batch.logit_rows)].tolist() == batch.logit_rows.tolist()
    assert [page for page in tensors.opened.tolist() if page] == batch.opened.tolist()
    for table, piece in zip(tensors.page_tables.tolist(), slices, strict=False):
        needed = -(-piece.end // page_size)
        assert table == [*piece.pages[:needed], *[0] * (len(table) - needed)]


def assert_filled_up(tensors: StepTensors, rows: int, slices: int, logits: int) -> None:
    """What lies past the real rows is as it should be."""
    assert not tensors.ids[rows:].any() and not tensors.positions[rows:].any()
    assert (tensors.lengths[rows:] == 1).all() and (tensors.slots[rows:] == -1).all()
    assert (tensors.cu_q[slices:] == rows).all() and not tensors.kv_len[slices:].any()
    assert not tensors.logit_rows[logits:].any()
    assert not tensors.opened[slices:].any() and not tensors.page_tables[slices:].any()
