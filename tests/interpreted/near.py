"""How near a kernel must come to its float64 reference over the same rounded inputs, and what such tests start from."""

import pytest
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def assert_near(got: Tensor, wanted: Tensor) -> None:
    """Within the tolerance of got's dtype, absolute up to 1 and relative above."""
    most = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), wanted.double(), atol=most, rtol=most)


def randoms(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal numbers, rounded to dtype."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def far_pages(page_size: int, dim: int) -> Tensor:
    """Nine pages of one head, float16, the last of which begins 2**31 elements after the first.

    The system lends the memory between them without giving it; where it doesn't, the test is skipped.
    """
    stride = 1 << 28
    try:
        store = torch.empty(8 * stride + page_size * dim, dtype=torch.float16)
    except RuntimeError:
        pytest.skip("this machine lends no 4 GiB of memory that are never touched")
    return store.as_strided((9, 1, page_size, dim), (stride, page_size * dim, dim, 1))
