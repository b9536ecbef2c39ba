"""The memory of keys and values, cut into pages that every layer shares. Knows no sequence and no plan.

Page 0 is the null page: nothing is kept there, short page tables are padded with it, and it stays zero.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import ConfigError
from ..kernels.cpu.memory import zeros
from ..stepping.pages import NULL_PAGE
from .spec import LayerShape

LEAST_PAGES = 2


def page_bytes(layers: Sequence[LayerShape], page_size: int, dtype: torch.dtype) -> int:
    """Bytes of one page over all layers."""
    return sum(layer.elements for layer in layers) * dtype.itemsize * page_size


def pages_for(layers: Sequence[LayerShape], *, kv_memory: int, page_size: int, seats: int, dtype: torch.dtype) -> int:
    """Usable pages that `kv_memory` bytes hold (the null page comes on top).

    Raises ConfigError when they are fewer than two, or than one for each seat.
    """
    size = page_bytes(layers, page_size, dtype)
    pages, needed = kv_memory // size, max(LEAST_PAGES, seats)
    if pages < needed:
        raise ConfigError(
            f"kv_memory ({kv_memory} bytes) holds {pages} pages of {page_size} tokens, {size} bytes each, but "
            f"max_seats ({seats}) needs at least {needed}: set kv_memory to {needed * size} or more, or lower max_seats"
        )
    return pages


class KVMemory:
    """Keys and values of every page, all zero at the start.

    layers: each layer's keys and values, [pages + 1, kv_heads, page_size, Dk or Dv]: views of the blocks.
    blocks: what is allocated, [n, pages + 1, kv_heads, page_size, D] each: one if all layers are alike, else each layer
    and kind has its own.
    """

    def __init__(
        self, layers: Sequence[LayerShape], *, pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.pages = pages
        self.page_size = page_size

        def block(count: int, kv_heads: int, dim: int) -> Tensor:
            shape = count, pages + 1, kv_heads, page_size, dim
            return zeros(shape, dtype) if device.type == "cpu" else torch.zeros(shape, dtype=dtype, device=device)

        first = layers[0]
        if first.key_dim == first.value_dim and all(layer == first for layer in layers):
            self.blocks = [block(2 * len(layers), first.kv_heads, first.key_dim)]
        else:
            dims = [(layer.kv_heads, dim) for layer in layers for dim in (layer.key_dim, layer.value_dim)]
            self.blocks = [block(1, *shape) for shape in dims]
        parts = [part for block in self.blocks for part in block]  # keys and values in turn
        self.layers: list[tuple[Tensor, Tensor]] = list(zip(parts[::2], parts[1::2], strict=True))

    def clear(self, pages: Tensor) -> None:
        """Zero some pages, [n] int64. A page is cleared when it is begun: masked slots are still multiplied, so what an
        earlier sequence left there must not be infinite or NaN."""
        if len(pages):
            for block in self.blocks:
                block.index_fill_(1, pages, 0)

    def clear_null_page(self) -> None:
        for block in self.blocks:
            block[:, NULL_PAGE] = 0

    def check(self) -> None:
        """Nothing was written to the null page."""
        assert not any(block[:, NULL_PAGE].any() for block in self.blocks), "the null page was written to"
