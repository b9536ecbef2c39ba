"""Attention over pages in C++, in every build: right to float64, and a row's result the same however it is computed."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from cpu_libraries import LEVELS, library
from fairstep.kernels.cpu.library import CLayer, CModel, CStep
from fairstep.kernels.paged_attention import AttentionKind
from fairstep.kernels.rope import rotary_table, rotate
from naive_attention import naive_attention

PAGES = 64


@dataclass(frozen=True)
class Shape:
    heads: int = 6
    kv_heads: int = 2
    dim: int = 64
    page_size: int = 16
    turned: int = 64

    @property
    def joined(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.dim


class Sequence_:
    """One sequence's joined queries, keys and values, and its pages."""

    def __init__(self, shape: Shape, length: int, index: int) -> None:
        each = -(-length // shape.page_size)
        order = torch.randperm(PAGES - 1, generator=torch.Generator().manual_seed(7)) + 1
        self.pages = order[index * 12 : index * 12 + each].tolist()
        assert len(self.pages) == each
        self.qkv = torch.randn(length, shape.joined, generator=torch.Generator().manual_seed(100 * index + length))


class Layer:
    """A layer's pages in one build."""

    def __init__(self, level: str, shape: Shape, kind: AttentionKind) -> None:
        self.library, self.shape = library(level), shape
        size = (PAGES, shape.kv_heads, shape.page_size, shape.dim)
        self.keys, self.values = (torch.zeros(size, dtype=torch.bfloat16) for _ in range(2))
        self.layer = CLayer(keys=self.keys.data_ptr(), values=self.values.data_ptr(), window=kind.window, table=0)
        self.model = CModel(
            layers=ctypes.pointer(self.layer),
            layer_count=1,
            hidden=32,
            intermediate=32,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.dim,
            page_size=shape.page_size,
            attention_scale=shape.dim**-0.5 if kind.scale is None else kind.scale,
            attention_softcap=kind.softcap,
        )

    def step(self, parts: Sequence[tuple[Sequence_, int, int]], threads: int = 2) -> list[Tensor]:
        """Positions [start, end) of some sequences -> [end - start, heads, dim] float32 each."""
        shape = self.shape
        positions = torch.cat([torch.arange(start, end) for _, start, end in parts])
        qkv = torch.cat([sequence.qkv[start:end] for sequence, start, end in parts])
        counts = [end - start for _, start, end in parts]
        tables = torch.zeros(len(parts), max(len(part[0].pages) for part in parts), dtype=torch.int64)
        for row, (sequence, _, _) in enumerate(parts):
            tables[row, : len(sequence.pages)] = torch.tensor(sequence.pages)
        firsts = [sum(counts[:n]) for n in range(len(parts))]
        bounds = torch.tensor(
            [(first, end - start, end) for first, (_, start, end) in zip(firsts, parts, strict=True)], dtype=torch.int32
        )
        cos, sin = table(positions, shape)
        step = CStep(
            page_tables=tables.data_ptr(),
            bounds=bounds.data_ptr(),
            cos=(ctypes.c_void_p * 2)(cos.data_ptr()),
            sin=(ctypes.c_void_p * 2)(sin.data_ptr()),
            turned=(ctypes.c_int32 * 2)(shape.turned),
            by_token=(ctypes.c_int32 * 2)(1),
            tokens=len(positions),
            slices=len(parts),
            table_width=tables.shape[1],
        )
        space = torch.empty(self.library.workspace(self.model, len(positions), 0), dtype=torch.uint8)
        step.workspace = space.data_ptr()
        out = torch.empty(len(positions), shape.heads, shape.dim, dtype=torch.bfloat16)
        self.library.attention(self.model, step, 0, qkv.data_ptr(), out.data_ptr(), threads)
        return list(out.float().split(counts))


def table(positions: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    return rotary_table(positions, 100.0 ** -(torch.arange(0, shape.turned, 2) / shape.turned))


def expected(sequence: Sequence_, shape: Shape, kind: AttentionKind) -> Tensor:
    """All positions, from what the pages and products hold: rounded to bfloat16."""
    cos, sin = table(torch.arange(len(sequence.qkv)), shape)
    heads = sequence.qkv.view(len(sequence.qkv), -1, shape.dim)
    qk, v = heads[:, : -shape.kv_heads], heads[:, -shape.kv_heads :]
    qk = rotate(qk, cos, sin).to(torch.bfloat16).float()
    return naive_attention(qk[:, : shape.heads], qk[:, shape.heads :], v.to(torch.bfloat16).float(), kind, None)


SHAPES = [
    Shape(),
    Shape(heads=2, kv_heads=2, dim=16, turned=16),
    Shape(heads=4, kv_heads=4, dim=80, turned=32, page_size=32),
    Shape(heads=14, kv_heads=2, dim=32, turned=32, page_size=48),
    Shape(heads=26, kv_heads=1, dim=48, turned=48),
    Shape(heads=5, kv_heads=1, dim=256, turned=256),
]
KINDS = [AttentionKind(), AttentionKind(window=20), AttentionKind(window=75), AttentionKind(scale=0.4, softcap=0.7)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prompts_and_decodes_are_those_of_float64(level: str, shape: Shape, kind: AttentionKind) -> None:
    layer = Layer(level, shape, kind)
    sequences = [Sequence_(shape, length, n) for n, length in enumerate((1, 17, 70, 150))]
    got = layer.step([(sequence, 0, len(sequence.qkv)) for sequence in sequences])
    for sequence, mine in zip(sequences, got, strict=True):
        torch.testing.assert_close(mine.double(), expected(sequence, shape, kind), atol=0.02, rtol=0.01)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_chunks_decodes_and_neighbours_change_no_bit(level: str, shape: Shape, kind: AttentionKind) -> None:
    one, other = Sequence_(shape, 150, 0), Sequence_(shape, 90, 1)
    [whole] = Layer(level, shape, kind).step([(one, 0, 150)], threads=1)
    layer = Layer(level, shape, kind)
    parts = [layer.step([(other, 0, 31), (one, 0, 13)])[1], layer.step([(one, 13, 66), (other, 31, 32)])[0]]
    parts += [layer.step([(one, n, n + 1), (other, n - 30, n - 29)])[0] for n in range(66, 110)]
    parts += [layer.step([(one, 110, 149)], threads=3)[0], layer.step([(one, 149, 150)])[0]]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_a_number_stays_in_its_sequence(level: str) -> None:
    shape = Shape()
    good, bad = Sequence_(shape, 40, 0), Sequence_(shape, 33, 1)
    [alone] = Layer(level, shape, AttentionKind()).step([(good, 0, 40)])
    bad.qkv[3] = torch.nan
    poisoned, beside = Layer(level, shape, AttentionKind()).step([(bad, 0, 33), (good, 0, 40)])
    assert torch.equal(beside, alone)
    assert poisoned[3:].isnan().all()
