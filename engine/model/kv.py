"""The memory of keys and values: one tensor for all layers, cut into pages. Knows no sequence and no plan.

Page 0 is the null page: nothing is kept there, short page tables are padded with it, and it stays zero.
"""

import torch
from torch import Tensor

from ..errors import ConfigError
from ..stepping.pages import NULL_PAGE
from .spec import ModelSpec


def page_bytes(spec: ModelSpec, page_size: int, dtype: torch.dtype) -> int:
    """Bytes of one page over all layers."""
    return sum(layer.elements for layer in spec.kv_layers) * dtype.itemsize * page_size


def pages_for(spec: ModelSpec, *, kv_memory: int, page_size: int, seats: int, dtype: torch.dtype) -> int:
    """Usable pages that `kv_memory` bytes hold (the null page comes on top).

    Raises ConfigError when they are fewer than two, or than one for each seat.
    """
    size = page_bytes(spec, page_size, dtype)
    pages, needed = kv_memory // size, max(2, seats)
    if pages < needed:
        raise ConfigError(
            f"kv_memory ({kv_memory} bytes) holds {pages} pages of {page_size} tokens, {size} bytes each, but "
            f"max_seats ({seats}) needs at least {needed}: set kv_memory to {needed * size} or more, or lower max_seats"
        )
    return pages


class KVMemory:
    """Keys and values of every page, all zero at the start.

    data: [layers, 2, pages + 1, kv_heads, page_size, head_dim], keys before values.
    """

    def __init__(
        self, spec: ModelSpec, *, pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.pages = pages
        self.page_size = page_size
        shape = (spec.layers, 2, pages + 1, spec.kv_heads, page_size, spec.head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)
        # [pages + 1, kv_heads, page_size, head_dim] each
        self.layers: list[tuple[Tensor, Tensor]] = [(layer[0], layer[1]) for layer in self.data]

    def clear(self, pages: Tensor) -> None:
        """Zero some pages, [n] int64. A page is cleared when it is begun: masked slots are still multiplied, so what an
        earlier sequence left there must not be infinite or NaN."""
        if len(pages):
            self.data.index_fill_(2, pages, 0)

    def clear_null_page(self) -> None:
        self.data[:, :, NULL_PAGE] = 0

    def check(self) -> None:
        """Nothing was written to the null page."""
        assert not self.data[:, :, NULL_PAGE].any(), "the null page was written to"
