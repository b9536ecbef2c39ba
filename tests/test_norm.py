"""RMSNorm in float32, whatever comes in and goes out."""

import pytest
import torch

from fairstep.kernels.norm import add_norm, rms_norm


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16])
def test_it_is_computed_in_float32_and_rounded_once(given: torch.dtype, wanted: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(5, 24, generator=random).to(given), torch.randn(24, generator=random)
    wide = x.to(torch.float64)
    exact = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt() * weight
    got = rms_norm(x, weight, 1e-3, wanted)
    assert got.dtype is wanted
    torch.testing.assert_close(
        got, exact.to(torch.float32).to(wanted), atol=1e-6, rtol=1e-6 if wanted is torch.float32 else 1e-2
    )


@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_a_blocks_output_is_added_before_the_next_norm(scale: float) -> None:
    random = torch.Generator().manual_seed(0)
    hidden, added, weight = torch.randn(3, 8, generator=random), torch.randn(3, 8, generator=random), torch.ones(8)
    stream = hidden.clone()
    got = add_norm(stream, added, weight, eps=1e-5, dtype=torch.float32, scale=scale)
    torch.testing.assert_close(stream, hidden + scale * added)
    torch.testing.assert_close(got, rms_norm(stream, weight, 1e-5, torch.float32))
    assert torch.equal(add_norm(stream, None, None, eps=1e-5, dtype=torch.float32), stream)
    normed = hidden.clone()
    add_norm(normed, added, None, eps=1e-5, dtype=torch.float32, added_weight=weight)
    torch.testing.assert_close(normed, hidden + rms_norm(added, weight, 1e-5, torch.float32))
