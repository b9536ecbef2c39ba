"""A packed weight gives what the plain one gives."""

import pytest
import torch
import torch.nn.functional as F

from fairstep.kernels.linear import Linear, can_pack


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 8, 33])
def test_it_equals_the_plain_product(dtype: torch.dtype, bias: bool, rows: int) -> None:
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 40, generator=random).to(dtype)
    shift = torch.randn(48, generator=random).to(dtype) if bias else None
    x = torch.randn(rows, 40, generator=random).to(dtype)
    tolerance = 1e-4 if dtype is torch.float32 else 0.1
    torch.testing.assert_close(Linear(weight, shift)(x), F.linear(x, weight, shift), atol=tolerance, rtol=0.01)


def test_a_format_that_cannot_be_packed_is_used_as_it_is() -> None:
    weight = torch.randn(4, 4, dtype=torch.float64)
    assert not can_pack(weight)
    assert Linear(weight).weight is weight
    torch.testing.assert_close(Linear(weight)(weight), weight @ weight.T)
