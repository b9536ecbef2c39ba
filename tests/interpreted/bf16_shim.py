"""bfloat16 in triton's interpreter, which keeps it as uint16: products that multiply its values instead of their bit
patterns, casts that round to nearest even instead of cutting bits off. Each is put in only where a kernel run with it
shows that triton does it wrong. All else on bfloat16 (sums, comparisons) stays wrong: kernels widen it first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter


@triton.jit
def _product_kernel(x, y, out):
    index = tl.arange(0, 16)
    tile = index[:, None] * 16 + index[None, :]
    tl.store(out + tile, tl.dot(tl.load(x + tile), tl.load(y + tile)))


@triton.jit
def _cast_kernel(x, out, size: tl.constexpr):
    index = tl.arange(0, size)
    tl.store(out + index, tl.load(x + index).to(tl.bfloat16))


@triton.jit
def _store_kernel(x, out, size: tl.constexpr):
    index = tl.arange(0, size)
    tl.store(out + index, tl.load(x + index))


def products_are_right() -> bool:
    random = torch.Generator().manual_seed(0)
    x, y = (torch.randn(16, 16, generator=random).to(torch.bfloat16) for _ in range(2))
    out = torch.empty(16, 16)
    _product_kernel[(1,)](x, y, out)
    return torch.allclose(out, x.float() @ y.float(), atol=1e-5)


def casts_are_right() -> bool:
    """Whether both ways to bfloat16, a cast and a store, round as torch does."""
    x = torch.cat((torch.randn(253, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 1e39, -1e39])))
    want = x.to(torch.bfloat16)
    for kernel in (_cast_kernel, _store_kernel):
        out = torch.empty_like(want)
        kernel[(1,)](x, out, 256)
        if not torch.equal(out, want):
            return False
    return True


def install() -> list[str]:
    """Put in what is missing, and check that it is right then; the names of what was put in."""
    put_in = []
    parts: list[tuple[str, Callable[[], bool], Callable[[type[Any]], None]]] = [
        ("products", products_are_right, _mend_products),
        ("casts", casts_are_right, _mend_casts),
    ]
    for name, is_right, mend in parts:
        if not is_right():
            mend(interpreter.InterpreterBuilder)
            assert is_right(), f"bfloat16 {name} are wrong in the interpreter of triton {triton.__version__}"
            put_in.append(name)
    return put_in


def _values(handle: Any) -> np.ndarray:
    """A handle's values in float32 where it holds bfloat16, else as they are."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle.data  # type: ignore[no-any-return]
    return np.left_shift(handle.data, 16, dtype=np.uint32).view(np.float32)


def _rounded(values: np.ndarray) -> np.ndarray:
    """float32 as the bits of the nearest bfloat16, ties to even; every NaN becomes the quiet one."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    last_kept = (bits >> 16) & 1
    nearest = ((bits + 0x7FFF + last_kept) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), nearest).reshape(np.shape(values))


def _mend_products(builder: type[Any]) -> None:
    theirs = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        if tl.bfloat16 not in (a.dtype.scalar, b.dtype.scalar):
            return theirs(self, a, b, d, *options)
        product = np.matmul(_values(a), _values(b), dtype=np.float32) + d.data
        return interpreter.TensorHandle(product.astype(d.data.dtype), d.dtype.scalar)

    builder.create_dot = create_dot


def _mend_casts(builder: type[Any]) -> None:
    their_cast, their_rounding = builder.cast_impl, builder.create_fp_to_fp

    def narrows(source: Any, target: Any) -> bool:
        return source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if narrows(source, target):
            return interpreter.TensorHandle(_rounded(source.data), tl.bfloat16)
        return their_cast(self, source, target)

    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        if narrows(source, target):
            return cast_impl(self, source, target)
        return their_rounding(self, source, target, rounding)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp
