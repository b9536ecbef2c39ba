"""Work on rows to measure: norm, activation, queries, keys and values, and sampling, with what each must move.

Sizes are those of Llama 3 8B.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fairstep.kernels.triton.activation import act_mul
from fairstep.kernels.triton.norm import add_norm
from fairstep.kernels.triton.qkv import qkv_rope_write
from fairstep.kernels.triton.sampling import Needs, Tables, sample
from fairstep.kernels.triton.sampling_records import Record

DTYPE = torch.bfloat16
SHORT = DTYPE.itemsize
HIDDEN, MLP, HEADS, KV_HEADS, DIM, PAGE, VOCAB = 4096, 14_336, 32, 8, 128, 16, 128_256
GREEDY = Needs(draws=False, cuts=False, cuts_twice=False, shapes=False, words=False)
TOP_P = Needs(draws=True, cuts=True, cuts_twice=False, shapes=False, words=False)


@dataclass(frozen=True, slots=True)
class RowWork:
    """moved: bytes at least. prepare: makes the operands, returns the call. bound: whether memory alone bounds it."""

    name: str
    moved: int
    prepare: Callable[[torch.device], Callable[[], object]]
    bound: bool = True


def norm(tokens: int) -> RowWork:
    """The stream in float32 is read and written, what is added is read, what comes out written."""

    def prepare(device: torch.device) -> Callable[[], object]:
        stream = torch.randn(tokens, HIDDEN, device=device)
        added = torch.randn(tokens, HIDDEN, dtype=DTYPE, device=device)
        weight = torch.ones(HIDDEN, device=device)
        return lambda: add_norm(stream, added, weight, eps=1e-5, dtype=DTYPE)

    return RowWork(f"norm {tokens} x {HIDDEN}", tokens * HIDDEN * (4 + 4 + SHORT + SHORT), prepare)


def activation(tokens: int) -> RowWork:
    def prepare(device: torch.device) -> Callable[[], object]:
        rows = torch.randn(tokens, 2 * MLP, dtype=DTYPE, device=device)
        return lambda: act_mul(rows, "silu")

    return RowWork(f"silu {tokens} x {MLP}", 3 * tokens * MLP * SHORT, prepare)


def qkv(tokens: int) -> RowWork:
    """All heads are read and written once, and the table of turns is read."""
    width = (HEADS + 2 * KV_HEADS) * DIM

    def prepare(device: torch.device) -> Callable[[], object]:
        rows = torch.randn(tokens, width, dtype=DTYPE, device=device)
        shape = (2, tokens // PAGE + 2, KV_HEADS, PAGE, DIM)
        keys, values = torch.zeros(shape, dtype=DTYPE, device=device)
        slots = torch.randperm(tokens, device=device) + PAGE
        table = (torch.randn(tokens, 1, DIM, device=device), torch.randn(tokens, 1, DIM, device=device))
        return lambda: qkv_rope_write(rows, slots, keys, values, table)

    return RowWork(f"qkv {tokens} x {width}", tokens * (2 * width * SHORT + DIM * 4 + 8), prepare)


def sampling(name: str, rows: int, needs: Needs, record: Record) -> RowWork:
    """Logits are read once at least."""

    def prepare(device: torch.device) -> Callable[[], object]:
        logits = torch.randn(rows, VOCAB, device=device) * 4
        none = torch.zeros(1, 1, dtype=torch.int32, device=device)
        records = torch.tensor([record.packed()] * rows, device=device)
        tables = Tables(records, none, none.float(), none[None], none)
        seats = torch.arange(rows, dtype=torch.int32, device=device)
        return lambda: sample(logits, seats, torch.zeros_like(seats), tables, needs)

    return RowWork(f"{name} {rows} x {VOCAB}", rows * VOCAB * 4, prepare, bound=needs is GREEDY)


def row_works(smoke: bool) -> list[RowWork]:
    top_p = Record(temperature=0.8, top_p=0.95, seed=7)
    works = []
    for tokens in (64,) if smoke else (64, 8192):
        works += [norm(tokens), activation(tokens), qkv(tokens)]
    for rows in (8,) if smoke else (64, 256):
        works += [sampling("greedy", rows, GREEDY, Record()), sampling("top-p", rows, TOP_P, top_p)]
    return works
