"""How kernels are launched, an architecture a file: nothing is tuned while requests wait.

The figures are found offline and written into these files. A chip without a file takes its nearest kin's.
"""

from dataclasses import replace

from . import gfx942, sm80, sm89, sm90, sm100
from .attention import AttentionConfig, Table, Variant

INTERPRETED: Table = {("decode", 256): AttentionConfig(16, 64, 4, 1), ("prefill", 256): AttentionConfig(32, 64, 4, 1)}

TABLES: dict[str, Table] = {
    "sm80": sm80.ATTENTION,
    "sm86": sm89.ATTENTION,  # as little shared memory as sm89
    "sm87": sm80.ATTENTION,
    "sm89": sm89.ATTENTION,
    "sm90": sm90.ATTENTION,
    "sm100": sm100.ATTENTION,
    "sm103": sm100.ATTENTION,
    "sm120": sm89.ATTENTION,
    "gfx942": gfx942.ATTENTION,
    "gfx950": gfx942.ATTENTION,
    "interpreted": INTERPRETED,
}


def config_for(arch: str, head_dim: int, group: int, variant: Variant) -> AttentionConfig:
    """The launch of a variant on a chip ("sm90", "gfx942", "interpreted").

    head_dim: the larger of Dk and Dv. group: query heads of a kv head. Raises ValueError for a chip without a table and
    for heads wider than all tables know.
    """
    if arch not in TABLES:
        raise ValueError(f"no launch figures for {arch}: known are {', '.join(TABLES)}")
    table = TABLES[arch]
    widths = sorted(width for kind, width in table if kind == variant and width >= head_dim)
    if not widths:
        raise ValueError(f"heads of {head_dim} dimensions are wider than the figures for {arch} go")
    config = table[variant, widths[0]]
    if config.block_m >= group:
        return config
    rows = 1 << (group - 1).bit_length()
    return replace(config, block_m=rows, num_warps=config.num_warps if rows < 128 else 8)  # 4 warps would spill
