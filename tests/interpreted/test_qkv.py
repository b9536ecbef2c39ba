"""The fused split, norms, rotation and KV write against the plain operations in float64."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from fairstep.kernels import qkv as plain
from fairstep.kernels.rope import rotary_table
from fairstep.kernels.triton.qkv import qkv_rope_write
from near import DTYPES, assert_near, far_pages, randoms

PAGES, PAGE, EPS = 6, 4, 1e-6
SLOTS = torch.tensor([9, -1, PAGES * PAGE - 1, 4])  # of four tokens, one of them padding
NORMS = ("none", "head", "all")


def table(turned: int, tokens: int = len(SLOTS), dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor] | None:
    """Of far positions, with a magnitude; None for 0."""
    if not turned:
        return None
    positions = 1000 * torch.arange(1, tokens + 1)
    cos, sin = rotary_table(positions, 10_000.0 ** -(torch.arange(0, turned, 2) / turned), 1.1)
    return cos.to(dtype), sin.to(dtype)


def weights(norm: str, heads: int, kv_heads: int, dim: int) -> list[Tensor]:
    sizes = {"none": (), "head": (dim, dim), "all": (heads * dim, kv_heads * dim)}[norm]
    return [1 + 0.3 * randoms(size, seed=size + place) for place, size in enumerate(sizes)]


def memory(kv_heads: int, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.full((PAGES, kv_heads, PAGE, dim), float("nan"), dtype=dtype)


def check(
    heads: int, kv_heads: int, dim: int, turned: int, norm: str, dtype: torch.dtype, *, interleaved: bool = False
) -> None:
    """Queries, keys and values are the reference's, and nothing else was written."""
    qkv = randoms(len(SLOTS), (heads + 2 * kv_heads) * dim, dtype=dtype)
    norms = weights(norm, heads, kv_heads, dim)
    keys, values = memory(kv_heads, dim, dtype), memory(kv_heads, dim, dtype)
    got = qkv_rope_write(qkv, SLOTS, keys, values, table(turned), norms, EPS, interleaved=interleaved)
    wide = memory(kv_heads, dim, torch.float64), memory(kv_heads, dim, torch.float64)
    turns = table(turned)
    wanted = plain.qkv_rope_write(
        qkv.double(),
        SLOTS,
        *wide,
        None if turns is None else (turns[0].double(), turns[1].double()),
        [weight.double() for weight in norms],
        EPS,
        interleaved=interleaved,
    )
    assert got.dtype is dtype and got.shape == (len(SLOTS), heads, dim)
    assert_near(got, wanted)
    for mine, exact in zip((keys, values), wide, strict=True):
        assert torch.equal(mine.isnan(), exact.isnan())
        assert_near(mine.nan_to_num(), exact.nan_to_num())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("norm", "interleaved"), [*product(NORMS, [False, True])])
@pytest.mark.parametrize(("dim", "turned"), [(16, 16), (24, 24), (16, 8), (24, 6), (16, 0)])
def test_every_norm_with_every_rotation(
    dim: int, turned: int, norm: str, interleaved: bool, dtype: torch.dtype
) -> None:
    check(4, 2, dim, turned, norm, dtype, interleaved=interleaved)


@pytest.mark.parametrize("dim", [64, 80, 96, 112, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (3, 1), (16, 2)])
def test_every_head_size_and_group(heads: int, kv_heads: int, dim: int) -> None:
    check(heads, kv_heads, dim, dim, "head", torch.bfloat16)


@pytest.mark.parametrize("norm", ["head", "all"])
def test_values_are_copied_to_the_last_bit(norm: str) -> None:
    qkv = randoms(len(SLOTS), 8 * 16, dtype=torch.bfloat16)
    qkv[0, -1] = float("inf")
    keys, values = memory(2, 16, torch.bfloat16), memory(2, 16, torch.bfloat16)
    with np.errstate(invalid="ignore"):  # the interpreter warns of what is thrown away
        qkv_rope_write(qkv, SLOTS, keys, values, table(16), weights(norm, 4, 2, 16), EPS)
    assert torch.equal(values[2, :, 1], qkv[0, -32:].view(2, 16))


@pytest.mark.parametrize("norm", NORMS)
def test_it_rounds_where_the_torch_decoder_does(norm: str) -> None:
    """All but a few are the same to the last bit: sums of squares have another order."""
    qkv, dim = randoms(len(SLOTS), 8 * 64, dtype=torch.bfloat16), 64
    mine, torchs = ([memory(2, dim, torch.bfloat16) for _ in range(2)] for _ in range(2))
    norms = weights(norm, 4, 2, dim)
    got = qkv_rope_write(qkv, SLOTS, mine[0], mine[1], table(dim), norms, EPS)
    wanted = plain.qkv_rope_write(qkv, SLOTS, torchs[0], torchs[1], table(dim), norms, EPS)
    assert (got == wanted).float().mean() > 0.98


def test_padding_is_nobodys_even_where_it_is_poisoned() -> None:
    qkv = randoms(len(SLOTS), 8 * 16)
    qkv[1] = float("nan")
    keys, values = memory(2, 16, torch.float32), memory(2, 16, torch.float32)
    queries = qkv_rope_write(qkv, SLOTS, keys, values, table(16), weights("all", 4, 2, 16), EPS)
    assert queries.isfinite().all() and not queries[1].any()
    assert keys.isfinite().sum() == values.isfinite().sum() == 3 * 2 * 16


def test_pages_may_have_any_strides() -> None:
    """Keys and values of a page side by side, heads inside a slot: the other usual order."""
    store = torch.full((PAGES, 2, PAGE, 2, 16), float("nan"))
    keys, values = (store[:, part].transpose(1, 2) for part in range(2))
    plainly = memory(2, 16, torch.float32), memory(2, 16, torch.float32)
    qkv = randoms(len(SLOTS), 200)[:, :128]  # rows that lie apart
    for pages in ((keys, values), plainly):
        qkv_rope_write(qkv, SLOTS, *pages, table(16), (), EPS)
    for mine, wanted in zip((keys, values), plainly, strict=True):
        torch.testing.assert_close(mine, wanted, equal_nan=True, atol=0, rtol=0)


@pytest.mark.parametrize("page_size", [1, 3, 2048])
def test_a_page_may_have_any_size(page_size: int) -> None:
    keys, values = (torch.full((3, 2, page_size, 16), float("nan")) for _ in range(2))
    qkv = randoms(2, 8 * 16)
    qkv_rope_write(qkv, torch.tensor([2 * page_size, 2 * page_size - 1]), keys, values)
    for pages, columns in ((keys, slice(64, 96)), (values, slice(96, 128))):
        assert torch.equal(pages[2, :, 0], qkv[0, columns].view(2, 16))
        assert torch.equal(pages[1, :, page_size - 1], qkv[1, columns].view(2, 16))
        assert pages.isfinite().sum() == 2 * 2 * 16


def test_pages_past_two_to_the_31_elements_are_reached() -> None:
    keys = far_pages(PAGE, 16)
    values = torch.zeros(9, 1, PAGE, 16, dtype=torch.float16)
    qkv = randoms(1, 3 * 16, dtype=torch.float16)
    qkv_rope_write(qkv, torch.tensor([8 * PAGE + 1]), keys, values)
    assert torch.equal(keys[8, 0, 1], qkv[0, 16:32])
    assert torch.equal(values[8, 0, 1], qkv[0, 32:])


def test_tables_may_differ_from_token_to_token() -> None:
    """Rotary scaling by length gives each token a table of its own: a row for a row, whatever its position."""
    cos, sin = table(16)  # type: ignore[misc]
    qkv = randoms(1, 8 * 16).expand(len(SLOTS), -1)
    pages = memory(2, 16, torch.float32), memory(2, 16, torch.float32)
    together = qkv_rope_write(qkv, SLOTS, *pages, (cos, sin))
    for row in (0, 2, 3):
        alone = qkv_rope_write(qkv[:1], SLOTS[row : row + 1], *pages, (cos[row : row + 1], sin[row : row + 1]))
        assert torch.equal(together[row], alone[0])
    assert not torch.equal(together[0], together[2])


def test_no_rows_are_no_launch() -> None:
    pages = memory(2, 16, torch.float32), memory(2, 16, torch.float32)
    assert qkv_rope_write(torch.empty(0, 8 * 16), SLOTS[:0], *pages).shape == (0, 4, 16)


def test_shapes_that_do_not_fit_are_refused() -> None:
    pages = memory(2, 16, torch.float32), memory(2, 16, torch.float32)
    with pytest.raises(ValueError, match="do not fit pages"):
        qkv_rope_write(torch.zeros(4, 100), SLOTS, *pages)
    with pytest.raises(ValueError, match="neither a head long"):
        qkv_rope_write(torch.zeros(4, 128), SLOTS, *pages, None, [torch.ones(8), torch.ones(8)])
    with pytest.raises(ValueError, match="must be pairs"):
        qkv_rope_write(torch.zeros(4, 128), SLOTS, *pages, table(32))
