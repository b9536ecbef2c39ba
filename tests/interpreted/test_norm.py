"""The residual addition with its norms by the kernel against torch in float64."""

from itertools import product

import pytest
import torch
from torch import Tensor

from fairstep.kernels import norm as plain
from fairstep.kernels.triton.norm import WIDEST, add_norm
from near import DTYPES, TOLERANCE, assert_near, randoms

EPS = 1e-5


def both(
    hidden: Tensor, added: Tensor | None, weight: Tensor | None, dtype: torch.dtype, **options: object
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """What is returned and the residual stream after it: by the kernel, and in float64."""

    def wide(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.double()

    mine, exact = hidden.clone(), hidden.double()
    got = add_norm(mine, added, weight, eps=EPS, dtype=dtype, **options)  # type: ignore[arg-type]
    options = {name: wide(value) if isinstance(value, Tensor) else value for name, value in options.items()}
    wanted = plain.add_norm(exact, wide(added), wide(weight), eps=EPS, dtype=torch.float64, **options)  # type: ignore[arg-type]
    return (got, mine), (wanted, exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("adds", "norms_added", "norms"), [*product([True], [False, True], [False, True]), (0, 0, 1)])
@pytest.mark.parametrize("size", [24, 64, 1000])
def test_it_is_the_reference(size: int, adds: bool, norms_added: bool, norms: bool, dtype: torch.dtype) -> None:
    added = randoms(3, size, dtype=dtype, seed=1) if adds else None
    added_weight = randoms(size, seed=2) if norms_added else None
    weight = randoms(size, seed=3) if norms else None
    options = {"added_weight": added_weight, "scale": 0.4}
    (got, stream), (wanted, exact) = both(randoms(3, size), added, weight, dtype, **options)
    assert got.dtype is dtype
    assert_near(got, wanted)
    assert stream.dtype is torch.float32
    assert_near(stream, exact)


def test_a_tiny_row_is_not_blown_up_and_a_row_of_zeros_stays() -> None:
    hidden = torch.cat((randoms(1, 64) * 1e-18, torch.zeros(1, 64)))
    (got, _), (wanted, _) = both(hidden, None, torch.ones(64), torch.float32)
    torch.testing.assert_close(got.double(), wanted, atol=0, rtol=2e-6)
    assert not got[1].any()


def test_a_large_row_keeps_its_digits() -> None:
    hidden = randoms(2, 64) * 1e6
    (got, stream), (wanted, exact) = both(hidden, randoms(2, 64, seed=1), torch.ones(64), torch.float32)
    assert_near(got, wanted)
    assert_near(stream, exact)


def test_the_stream_is_the_torch_decoders_to_the_last_bit() -> None:
    """Without a norm of what is added there is nothing to round differently."""
    hidden, added = randoms(4, 64), randoms(4, 64, dtype=torch.bfloat16, seed=1)
    mine, torchs = hidden.clone(), hidden.clone()
    add_norm(mine, added, None, eps=EPS, dtype=torch.bfloat16)
    plain.add_norm(torchs, added, None, eps=EPS, dtype=torch.bfloat16)
    assert torch.equal(mine, torchs)


def test_a_poisoned_row_stays_alone_and_nothing_is_read_past_a_row() -> None:
    store = torch.full((4, 100), float("nan"))
    store[1:3, :40] = randoms(2, 40)
    added = torch.full((4, 100), float("nan"), dtype=torch.bfloat16)
    added[1:3, :40] = randoms(2, 40, dtype=torch.bfloat16, seed=1)
    before = store.clone()
    got = add_norm(store[:, :40], added[:, :40], torch.ones(40), eps=EPS, dtype=torch.bfloat16)
    assert got[1:3].isfinite().all() and got[[0, 3]].isnan().all()
    assert_near(store[1:3, :40], before[1:3, :40].double() + added[1:3, :40].double())
    assert store[:, 40:].isnan().all()


def test_no_rows_are_no_launch() -> None:
    assert add_norm(torch.empty(0, 8), None, torch.ones(8), eps=EPS, dtype=torch.float16).shape == (0, 8)


def test_what_no_program_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="wider than"):
        add_norm(torch.zeros(1, WIDEST + 1), None, None, eps=EPS, dtype=torch.float32)
    with pytest.raises(ValueError, match="one after the other"):
        add_norm(torch.zeros(8, 4).T, None, None, eps=EPS, dtype=torch.float32)


def test_tolerances_can_fail() -> None:
    exact = randoms(4, 64).double()
    for dtype, most in TOLERANCE.items():
        with pytest.raises(AssertionError):
            assert_near((exact + 5 * most * (1 + exact.abs())).to(dtype), exact)
