"""Loops up to a number that a kernel computes, in triton's interpreter: before 3.9 it turns such numbers into Python's
in a way that numpy no longer allows. Put in only where a kernel with such a loop fails.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter


@triton.jit
def _count_kernel(bound, out):
    rounds = 0
    for _ in tl.range(0, tl.load(bound)):
        rounds += 1
    tl.store(out, rounds)


def loops_are_right() -> bool:
    out = torch.zeros(1, dtype=torch.int32)
    try:
        _count_kernel[(1,)](torch.tensor([3], dtype=torch.int32), out)
    except Exception:  # triton wraps what numpy raises in an error of its own, which has moved between versions
        return False
    return out.item() == 3


def install() -> None:
    if loops_are_right():
        return
    theirs = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        theirs(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch
    assert loops_are_right(), f"loops are wrong in the interpreter of triton {triton.__version__}"
