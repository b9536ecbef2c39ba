"""What can be chosen when paged attention is launched."""

from dataclasses import dataclass
from typing import Literal

Variant = Literal["decode", "prefill"]


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """How one variant of attention is launched for one width of heads.

    block_m: rows of a tile, each a query head of one query; a kv head's query heads stand side by side, so it must hold
    them all. block_n: positions of a tile. num_stages: as triton counts them: reading page tables on the way to keys
    and values takes half of them, so (num_stages - 1) // 2 tiles are in flight, and a decode needs 5 or more on NVIDIA.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


# by variant and head dimension: of the widths listed, heads take the next that holds them
Table = dict[tuple[Variant, int], AttentionConfig]
