"""Keys and values written into their slots by the kernel: those and no others."""

import pytest
import torch
from torch import Tensor

from fairstep.kernels.triton.kv_write import kv_write
from near import DTYPES, far_pages, randoms

PAGES, PAGE = 6, 4


def memory(kv_heads: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full((PAGES, kv_heads, PAGE, dim), float("nan"), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kv_heads", "key_dim", "value_dim"), [(1, 64, 64), (3, 24, 16), (40, 128, 80)])
def test_rows_are_where_their_slots_say(kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype) -> None:
    keys, values = memory(kv_heads, key_dim, dtype), memory(kv_heads, value_dim, dtype)
    k, v = randoms(3, kv_heads, key_dim, dtype=dtype), randoms(3, kv_heads, value_dim, dtype=dtype, seed=1)
    kv_write(keys, values, k, v, torch.tensor([9, PAGES * PAGE - 1, 4]))
    for row, (page, offset) in enumerate([(2, 1), (5, 3), (1, 0)]):
        assert torch.equal(keys[page, :, offset], k[row])
        assert torch.equal(values[page, :, offset], v[row])
    assert keys.isfinite().sum() == k.numel()
    assert values.isfinite().sum() == v.numel()


@pytest.mark.parametrize("page_size", [1, 3, 16, 2048])
def test_a_page_may_have_any_size(page_size: int) -> None:
    keys = torch.full((3, 2, page_size, 8), float("nan"))
    k = randoms(2, 2, 8)
    kv_write(keys, keys.clone(), k, k, torch.tensor([2 * page_size, 2 * page_size - 1]))
    assert torch.equal(keys[2, :, 0], k[0]) and torch.equal(keys[1, :, page_size - 1], k[1])
    assert keys.isfinite().sum() == k.numel()


def test_slot_minus_one_skips_its_row() -> None:
    keys, values = memory(2, 8), memory(2, 8)
    k = randoms(4, 2, 8)
    k[[0, 2]] = float("inf")
    kv_write(keys, values, k, k, torch.tensor([-1, 7, -1, 0]))
    assert torch.equal(keys[1, :, 3], k[1]) and torch.equal(values[0, :, 0], k[3])
    assert not keys.isinf().any()
    assert keys.isfinite().sum() == 2 * 2 * 8


def test_rows_and_pages_may_have_any_strides() -> None:
    store = torch.full((PAGES, 2, PAGE, 3, 16), float("nan"))  # keys and values of a page side by side, heads inside
    keys, values = (store[:, part].transpose(1, 2) for part in range(2))
    k = randoms(3, 2, 16).transpose(0, 1)
    v = randoms(16, 3, 2, seed=1).transpose(0, 2)  # the elements of a row lie apart
    kv_write(keys, values, k, v, torch.tensor([4, 11]))
    assert torch.equal(keys[1, :, 0], k[0]) and torch.equal(keys[2, :, 3], k[1])
    assert torch.equal(values[1, :, 0], v[0]) and torch.equal(values[2, :, 3], v[1])
    assert store.isfinite().sum() == 2 * k.numel()


def test_pages_past_two_to_the_31_elements_are_reached() -> None:
    keys = far_pages(PAGE, 8)
    k = randoms(1, 1, 8, dtype=torch.float16)
    kv_write(keys, keys, k, k, torch.tensor([8 * PAGE + 1]))
    assert torch.equal(keys[8, :, 1], k[0])


def test_shapes_that_do_not_fit_are_refused() -> None:
    keys = memory(2, 8)
    with pytest.raises(ValueError, match="do not fit pages"):
        kv_write(keys, keys, torch.zeros(1, 2, 4), torch.zeros(1, 2, 8), torch.tensor([0]))
