"""A step's inputs made on the device out of what it keeps of every seat: its newest token and its page table.

A step sends its slices in a few integers each, the prompts' tokens, and pages that were added; the tensors' memory
stays the same from step to step, as graphs need it. Knows no model, no sampler and no scheduling.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ..kernels.step_inputs import NEWEST, NO_ROW, NO_SEAT, SliceRow, StepTensors
from ..kernels.triton.inputs import fill_inputs, put_pages
from ..stepping.plan import Slice
from .upload import upload

SIZE, START, FIRST, LOGIT = (SliceRow._fields.index(name) for name in ("size", "start", "first", "logit"))
ALIGNED = 4  # parts of what is sent begin at multiples of 16 bytes, which kernels are compiled for


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a step's tensors are filled up to, each 0 for as many as there are: rows, slices, rows of logits, and pages
    of the longest table."""

    tokens: int = 0
    slices: int = 0
    logits: int = 0
    pages: int = 0


EXACT = Sizes()


@dataclass(frozen=True, slots=True)
class StepInputs:
    """tensors: views of memory that the next step's use too. tokens, slices, logits: how many are real.

    target_rows, targets [Q] int64: the rows that predict tokens whose log probabilities are asked for, and those; None
    where nobody asks.
    """

    tensors: StepTensors
    tokens: int
    slices: int
    logits: int
    target_rows: Tensor | None = None
    targets: Tensor | None = None


@dataclass(slots=True)
class _Holder:
    """Whose a seat is, and the pages that its table has on the device."""

    seq: int
    attempt: int
    pages: tuple[int, ...]


class DeviceInputs:
    """Owner of the seats' newest tokens and page tables on the device. Steps are prepared in the order they run in.

    newest [seats + 1] int64: who draws a seat's token puts it there; the last is of slices without a seat.
    """

    def __init__(self, *, seats: int, tokens: int, pages: int, page_size: int, device: torch.device) -> None:
        """tokens: most rows of a step. pages: most of one sequence."""
        self._page_size = page_size
        self._device = device
        self._holders: dict[int, _Holder] = {}
        self._tables = torch.zeros(seats + 1, pages, dtype=torch.int32, device=device)
        self.newest = torch.zeros(seats + 1, dtype=torch.int64, device=device)
        self._store = _store(seats, tokens, pages, device)

    def prepare(self, slices: Sequence[Slice], sizes: Sizes = EXACT) -> StepInputs:
        """The tensors of some slices, decodes first or not; nothing is waited for."""
        rows = _rows(slices)
        real = self._real_sizes(rows)
        full = Sizes(*map(max, _values(real), _values(sizes)))
        assert full.tokens <= len(self._store.ids), f"{full.tokens} rows, there is memory for {len(self._store.ids)}"
        assert full.slices <= len(self._store.kv_len), f"{full.slices} slices, memory for {len(self._store.kv_len)}"
        ids = np.fromiter(chain.from_iterable(s.tokens for s in slices if not s.awaits), np.int32)
        target_rows, targets = _targets(slices, rows)
        parts = (_filled_up(rows, real, full), self._page_changes(slices), ids, target_rows, targets)
        described, changes, tokens, *asked = _sent_together(parts, self._device)
        put_pages(self._tables, changes)
        tensors = self._views(full)
        longest = max(full.logits - real.logits, full.tokens - real.tokens, int(rows[:, SIZE].max()))
        fill_inputs(tensors, described, tokens, self.newest, self._tables, self._page_size, longest)
        told = [part.long() for part in asked] if len(targets) else [None, None]
        return StepInputs(tensors, real.tokens, real.slices, real.logits, *told)

    def check(self) -> None:
        """Assert that the device's page tables are those sent; waits for the device."""
        tables = self._tables.tolist()
        for seat, holder in self._holders.items():
            assert tables[seat][: len(holder.pages)] == list(holder.pages), f"seat {seat} has another page table"

    def _real_sizes(self, rows: np.ndarray) -> Sizes:
        """Of slices as _rows() describes them."""
        longest = int((rows[:, START] + rows[:, SIZE]).max())
        return Sizes(
            tokens=int(rows[:, SIZE].sum()),
            slices=len(rows),
            logits=int((rows[:, LOGIT] != NO_ROW).sum()),
            pages=-(-longest // self._page_size),
        )

    def _page_changes(self, slices: Sequence[Slice]) -> np.ndarray:
        """What the device's tables lack, [U, 2] int32, and note it as sent."""
        changes: list[tuple[int, int]] = []
        width = self._tables.shape[1]
        for piece in slices:
            holder = self._holders.get(piece.seat)
            if piece.seat < 0 or (holder and holder.pages is piece.pages):
                continue
            sent = holder.pages if holder and (holder.seq, holder.attempt) == (piece.seq, piece.attempt) else ()
            assert piece.pages[: len(sent)] == sent, f"sequence {piece.seq}: pages changed"
            at = piece.seat * width
            changes += [(at + index, piece.pages[index]) for index in range(len(sent), len(piece.pages))]
            self._holders[piece.seat] = _Holder(piece.seq, piece.attempt, piece.pages)
        return np.array(changes, np.int32).reshape(-1, 2)

    def _views(self, sizes: Sizes) -> StepTensors:
        store = self._store
        return StepTensors(
            ids=store.ids[: sizes.tokens],
            positions=store.positions[: sizes.tokens],
            lengths=store.lengths[: sizes.tokens],
            slots=store.slots[: sizes.tokens],
            cu_q=store.cu_q[: sizes.slices + 1],
            kv_len=store.kv_len[: sizes.slices],
            logit_rows=store.logit_rows[: sizes.logits],
            opened=store.opened[: sizes.slices],
            page_tables=store.page_tables[: sizes.slices, : sizes.pages],
        )


def _store(seats: int, tokens: int, pages: int, device: torch.device) -> StepTensors:
    """The memory of the largest step: two slices for each seat, as a padded batch has one more for each prompt."""

    def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=device)

    return StepTensors(
        ids=zeros(tokens, dtype=torch.int64),
        positions=zeros(tokens, dtype=torch.int64),
        lengths=zeros(tokens, dtype=torch.int64),
        slots=zeros(tokens, dtype=torch.int64),
        cu_q=zeros(2 * seats + 1, dtype=torch.int32),
        kv_len=zeros(2 * seats, dtype=torch.int32),
        logit_rows=zeros(seats, dtype=torch.int64),
        opened=zeros(2 * seats, dtype=torch.int64),
        page_tables=zeros(2 * seats, pages, dtype=torch.int32),
    )


def _values(sizes: Sizes) -> tuple[int, int, int, int]:
    return sizes.tokens, sizes.slices, sizes.logits, sizes.pages


def _rows(slices: Sequence[Slice]) -> np.ndarray:
    """A SliceRow for each slice, [S, 7] int32."""
    sizes = np.array([len(s.tokens) for s in slices])
    samples = np.array([s.samples for s in slices])
    awaits = np.array([s.awaits for s in slices])
    from_host = np.where(awaits, 0, sizes)
    columns = {
        "seat": [s.seat for s in slices],
        "start": [s.start for s in slices],
        "size": sizes,
        "first": np.cumsum(sizes) - sizes,
        "stretch": [s.stretch for s in slices],
        "logit": np.where(samples, np.cumsum(samples) - 1, NO_ROW),
        "source": np.where(awaits, NEWEST, np.cumsum(from_host) - from_host),
    }
    return np.stack([columns[name] for name in SliceRow._fields], axis=1).astype(np.int32)


def _filled_up(rows: np.ndarray, real: Sizes, full: Sizes) -> np.ndarray:
    """With slices of nothing up to the full size, and the last row that says what fills up."""
    nothing = SliceRow(NO_SEAT, 0, 0, real.tokens, 0, NO_ROW, 0)
    end = nothing._replace(size=full.tokens - real.tokens, logit=real.logits)
    return np.vstack((rows, [nothing] * (full.slices - real.slices) + [end])).astype(np.int32)


def _targets(slices: Sequence[Slice], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that predict targets, and the targets, [Q] int32 each."""
    firsts = rows[:, FIRST].tolist()
    places = [range(first, first + len(s.targets)) for s, first in zip(slices, firsts, strict=True) if s.targets]
    targets = chain.from_iterable(s.targets for s in slices)
    return np.fromiter(chain.from_iterable(places), np.int32), np.fromiter(targets, np.int32)


def _sent_together(parts: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """int32 arrays on the device, in one copy."""
    starts = np.cumsum([0, *(-(-part.size // ALIGNED) * ALIGNED for part in parts)])
    joined = np.zeros(starts[-1], np.int32)
    for part, start in zip(parts, starts, strict=False):
        joined[start : start + part.size] = part.ravel()
    sent = upload(joined, device)
    return [
        sent[start : start + part.size].view(part.shape) for part, start in zip(parts, starts.tolist(), strict=False)
    ]
