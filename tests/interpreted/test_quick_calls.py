"""Calls inside a kernel are quick, and change nothing else."""

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter


@triton.jit
def _outer(x, out):
    index = tl.arange(0, 8)
    value = tl.load(x + index)
    for _ in tl.static_range(10):
        value = _inner(value)
    tl.store(out, tl.sum(value, 0))


@triton.jit
def _inner(value):
    return tl.maximum(value - 1.0, 0.0)


def test_operations_are_put_in_once_a_kernel_and_taken_out_again(monkeypatch) -> None:
    counted: list[object] = []
    put_in = interpreter._patch_builtin
    monkeypatch.setattr(interpreter, "_patch_builtin", lambda *given: (counted.append(given[0]), put_in(*given))[1])
    out = torch.empty(1)
    for _ in range(3):
        counted.clear()
        _outer[(1,)](torch.arange(8.0) + 10, out)
        assert out == 28.0
        assert tl.core.is_builtin(tl.load) and tl.core.is_builtin(tl.tensor.__add__)
    assert 1 <= counted.count(tl) <= 2 and len(counted) < 12
