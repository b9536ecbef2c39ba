"""Memory in huge pages, where the system gives them. Knows nothing of what is kept.

A step reads all weights once; with small pages it would look up an address for every 4 KiB of them.
"""

import mmap
import sys
from contextlib import suppress

import torch
from torch import Tensor

MAPPING = 64 << 20  # bytes
HUGE = 2 << 20
LINE = 64  # bytes of a cache line


class StreamMemory:
    """Hands out pieces of large mappings, one after another. A mapping lives as long as a piece of it."""

    def __init__(self) -> None:
        self._rest = torch.empty(0, dtype=torch.uint8)

    def take(self, *shape: int) -> Tensor:
        """Bytes of this shape, zero, that begin at a cache line."""
        size = torch.Size(shape).numel()
        whole = -(-size // LINE) * LINE
        if whole > len(self._rest):
            self._rest = _mapped(max(MAPPING, whole))
        piece, self._rest = self._rest[:size], self._rest[whole:]
        return piece.view(shape)


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """As torch.zeros on the CPU, in huge pages where it fills one. Memory is taken when it is first written to."""
    size = torch.Size(shape).numel() * dtype.itemsize
    if size < HUGE:
        return torch.zeros(shape, dtype=dtype)
    return _mapped(size)[:size].view(dtype).view(shape)


def _mapped(size: int) -> Tensor:
    """At least size bytes, zero, from a huge page's border on."""
    whole = -(-size // HUGE) * HUGE
    if sys.platform != "linux":
        return torch.zeros(whole, dtype=torch.uint8)
    mapping = mmap.mmap(-1, whole + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(mapping, dtype=torch.uint8)
    return memory[-memory.data_ptr() % HUGE :][:whole]
