"""Loops up to computed numbers in the interpreter, after the conftest has put in what triton lacks."""

import torch
import triton
import triton.language as tl

import loop_shim


@triton.jit
def _sum_kernel(first, bound, step, out):
    total = tl.load(first) * 0
    for number in tl.range(tl.load(first), tl.load(bound), tl.load(step)):
        total += number
    tl.store(out, total)


def test_nothing_is_left_to_put_in() -> None:
    assert loop_shim.loops_are_right()


def test_a_loop_may_begin_end_and_step_as_a_kernel_says() -> None:
    first, bound, step, out = (torch.tensor([value], dtype=torch.int32) for value in (3, 20, 4, 0))
    _sum_kernel[(1,)](first, bound, step, out)
    assert out.item() == sum(range(3, 20, 4))
