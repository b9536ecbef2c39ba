"""Times on a GPU, and what that GPU can do at most, measured beside them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton.testing

WIDE = 2**30  # bytes that are copied to find the bandwidth
SQUARE = 8192  # of the product that shows the most operations


@dataclass(frozen=True, slots=True)
class Peak:
    """Measured: bytes copied a second, read and written; 16-bit operations of a large product a second."""

    bandwidth: float
    operations: float


def seconds(call: Callable[[], object]) -> float:
    """The median time of a call on the GPU, from a cold cache, without the time that Python takes to launch it."""
    for _ in range(3):  # compile, and have memory at hand
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return float(triton.testing.do_bench(graph.replay, warmup=50, rep=200, return_mode="median")) / 1000


def peak() -> Peak:
    source = torch.empty(WIDE, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    bandwidth = 2 * WIDE / seconds(lambda: target.copy_(source))
    square = torch.randn(SQUARE, SQUARE, dtype=torch.bfloat16, device="cuda")
    return Peak(bandwidth, 2 * SQUARE**3 / seconds(lambda: square @ square))
