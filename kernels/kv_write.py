"""Write a step's keys and values into their slots. The plain torch version; layout as in paged_attention.py."""

from torch import Tensor


def kv_write(keys: Tensor, values: Tensor, k: Tensor, v: Tensor, pages: Tensor, offsets: Tensor) -> None:
    """Put k, v [T, kv_heads, D] at (pages [T], offsets [T]) of keys, values [pages, kv_heads, page_size, D], in place.

    A token's slot is page * page_size + offset; `pages` and `offsets` are int64. The slots must be distinct.
    """
    keys[pages, :, offsets] = k
    values[pages, :, offsets] = v
