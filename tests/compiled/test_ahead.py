"""What launchers launch is noted instead of run, and compiled as it would be on a chip."""

import pytest
import torch
from triton.compiler import CompilationError

from fairstep.kernels.triton.ahead import compiled, launches_of, recorded
from fairstep.kernels.triton.case import empty
from fairstep.kernels.triton.chips import CHIPS
from small_kernels import copy, gather_dot


def launch_copy(step: int = 1, count: int = 4096) -> None:
    copy[(count // 1024,)](empty(count), empty(count), step, count, BLOCK=1024, num_warps=4)


def test_launches_are_noted_in_order_and_not_run() -> None:
    with recorded() as launches:
        launch_copy()
        launch_copy(step=2, count=2048)
    assert [launch.name for launch in launches] == ["copy", "copy"]
    assert [launch.grid for launch in launches] == [(4,), (2,)]
    assert launches[1].arguments[2:] == (2, 2048)
    assert launches[1].options == {"BLOCK": 1024, "num_warps": 4}


def test_a_grid_that_is_computed_sees_the_constants() -> None:
    [launch] = launches_of(
        lambda: copy[lambda meta: (meta["count"] // meta["BLOCK"],)](empty(64), empty(64), 1, 64, BLOCK=32)
    )
    assert launch.grid == (2,)


def test_afterwards_kernels_run_again() -> None:
    launches_of(launch_copy)
    with pytest.raises(RuntimeError, match="driver"):
        launch_copy()  # no GPU: triton itself says so


def test_numbers_are_specialised_as_they_are_when_launched() -> None:
    one, two = launches_of(launch_copy) + launches_of(lambda: launch_copy(step=2))
    assert "step" not in compiled(one, CHIPS["sm90"]).asm["ttgir"]  # a one is part of the kernel
    assert "step" in compiled(two, CHIPS["sm90"]).asm["ttgir"]


def test_every_chip_has_its_own_code() -> None:
    [launch] = launches_of(launch_copy)
    for chip in CHIPS.values():
        asm = compiled(launch, chip).asm
        assert ("cubin" if chip.nvidia else "hsaco") in asm
        assert f".target sm_{chip.arch}" in asm["ptx"] if chip.nvidia else chip.name in asm["amdgcn"]


def test_what_does_not_compile_is_told() -> None:
    odd = empty(64, 96, dtype=torch.float16)  # tl.arange needs a power of two
    [launch] = launches_of(lambda: gather_dot[(1,)](odd, odd, odd, empty(4), 64, 96, D=96, M=16, N=32))
    with pytest.raises(CompilationError):
        compiled(launch, CHIPS["sm90"])
