"""Keys and values land in their slots, and nowhere else."""

import pytest
import torch

from fairstep.kernels.kv_write import kv_write


@pytest.mark.parametrize("page_size", [1, 8, 16])
def test_each_token_lands_in_its_slot_and_nothing_else_changes(page_size: int) -> None:
    random = torch.Generator().manual_seed(0)
    keys = torch.randn(6, 3, page_size, 4, generator=random)
    values = torch.randn(6, 3, page_size, 4, generator=random)
    want_keys, want_values = keys.clone(), values.clone()
    slots = torch.randperm(6 * page_size, generator=random)[:5]
    k, v = torch.randn(5, 3, 4, generator=random), torch.randn(5, 3, 4, generator=random)
    for row, slot in enumerate(slots.tolist()):
        want_keys[slot // page_size, :, slot % page_size] = k[row]
        want_values[slot // page_size, :, slot % page_size] = v[row]
    kv_write(keys, values, k, v, slots // page_size, slots % page_size)
    assert torch.equal(keys, want_keys)
    assert torch.equal(values, want_values)


def test_a_part_of_a_larger_tensor_can_be_written() -> None:
    keys, values = torch.zeros(2, 2, 4, 3), torch.zeros(2, 2, 4, 3)
    joined = torch.arange(2 * 6 * 3, dtype=torch.float32).view(2, 6, 3)  # [T, heads, D], not contiguous when cut
    kv_write(keys, values, joined[:, 2:4], joined[:, 4:6], torch.tensor([1, 1]), torch.tensor([0, 3]))
    assert torch.equal(keys[1, :, 3], joined[1, 2:4])
    assert torch.equal(values[1, :, 0], joined[0, 4:6])
    assert not keys[0].any()
