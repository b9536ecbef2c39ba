"""What the kernels of a decoder's layers are compiled for, in shapes of real models.

Llama 3.2 1B (D 64), Llama 3 8B (D 128), Qwen3 8B (norms of heads), OLMo 2 7B (norms of all heads), Phi 2 (D 80, a part
of each head turns), Phi 3 mini (D 96), Gemma 2 9B and Gemma 3 12B (D 256), gpt-oss (sinks), SmolLM2 135M (a group of
3), Falcon 7B (one of 71).
"""

from collections.abc import Callable

import torch

from ..paged_attention import PLAIN, AttentionKind
from .activation import act_mul
from .attention import AttentionConfigs, make_scratch, paged_attention
from .case import LONGEST, NAMES, PAGE_SIZE, SEQUENCES, SHORT, TOKENS, Case, empty, pages
from .chips import Chip
from .configs import config_for
from .kv_write import kv_write
from .norm import add_norm
from .qkv import qkv_rope_write


def attention_cases() -> list[Case]:
    def call(
        shape: tuple[int, int, int], kind: AttentionKind, sinks: bool, dtype: torch.dtype
    ) -> Callable[[Chip], object]:
        heads, kv_heads, dim = shape
        q = empty(TOKENS, heads, dim, dtype=dtype)

        def attend(chip: Chip) -> object:
            decode = config_for(chip.name, dim, heads // kv_heads, "decode")
            prefill = config_for(chip.name, dim, heads // kv_heads, "prefill")
            return paged_attention(
                q,
                *pages(kv_heads, dim, dtype),
                empty(SEQUENCES, LONGEST // PAGE_SIZE, dtype=torch.int32),
                empty(SEQUENCES + 1, dtype=torch.int32),
                empty(SEQUENCES, dtype=torch.int32),
                torch.empty_like(q),
                make_scratch(SEQUENCES, heads, dim, LONGEST, q.device),
                only_decodes=False,
                kind=kind,
                sinks=empty(heads, dtype=dtype) if sinks else None,
                configs=AttentionConfigs(decode, prefill),
            )

        return attend

    def case(
        name: str, shape: tuple[int, int, int], dtype: torch.dtype, kind: AttentionKind = PLAIN, sinks: bool = False
    ) -> Case:
        return Case(f"{name} {NAMES[dtype]}", call(shape, kind, sinks, dtype), tiles={"decode_kernel": 2})

    bf16 = torch.bfloat16
    return [
        *(case("attention 32/8x64", (32, 8, 64), dtype) for dtype in SHORT),
        *(case("attention 32/8x128", (32, 8, 128), dtype) for dtype in SHORT),
        case("attention 9/3x64", (9, 3, 64), bf16),
        case("attention 71/1x64", (71, 1, 64), bf16),
        case("attention 64/8x64 sinks", (64, 8, 64), bf16, AttentionKind(window=128), sinks=True),
        case("attention 32/32x80", (32, 32, 80), bf16),
        case("attention 32/32x96", (32, 32, 96), bf16, AttentionKind(window=2047)),
        case("attention 16/8x256", (16, 8, 256), bf16),
        case("attention 16/8x256 softcap", (16, 8, 256), bf16, AttentionKind(window=4096, softcap=50.0)),
    ]


def norm_cases() -> list[Case]:
    def call(size: int, dtype: torch.dtype, sandwich: bool) -> Callable[[Chip], object]:
        added_weight = empty(size) if sandwich else None
        return lambda chip: add_norm(
            empty(TOKENS, size),
            empty(TOKENS, size, dtype=dtype),
            empty(size),
            eps=1e-5,
            dtype=dtype,
            added_weight=added_weight,
        )

    sizes = ((2048, False), (4096, False), (3840, True), (16384, False))
    return [
        Case(f"norm {size}{' twice' if sandwich else ''} {NAMES[dtype]}", call(size, dtype, sandwich))
        for size, sandwich in sizes
        for dtype in SHORT
    ]


def activation_cases() -> list[Case]:
    def call(size: int, dtype: torch.dtype, gelu: bool) -> Callable[[Chip], object]:
        rows = empty(TOKENS, 2 * size, dtype=dtype)
        return lambda chip: act_mul(rows, "gelu_tanh" if gelu else "silu")

    return [
        Case(f"{'gelu' if gelu else 'silu'} {size} {NAMES[dtype]}", call(size, dtype, gelu))
        for size, gelu in ((8192, False), (14336, False), (15360, True))
        for dtype in SHORT
    ]


def kv_write_cases() -> list[Case]:
    def call(kv_heads: int, dim: int, dtype: torch.dtype) -> Callable[[Chip], object]:
        rows = empty(TOKENS, kv_heads, dim, dtype=dtype)
        return lambda chip: kv_write(*pages(kv_heads, dim, dtype), rows, rows, empty(TOKENS, dtype=torch.int64))

    return [
        Case(f"kv write {kv_heads}x{dim} {NAMES[dtype]}", call(kv_heads, dim, dtype))
        for kv_heads, dim in ((8, 64), (8, 128), (32, 80))
        for dtype in SHORT
    ]


def qkv_cases() -> list[Case]:
    def call(
        shape: tuple[int, int, int], turned: int, norms: tuple[int, ...], dtype: torch.dtype
    ) -> Callable[[Chip], object]:
        heads, kv_heads, dim = shape
        table = (empty(TOKENS, 1, turned), empty(TOKENS, 1, turned))
        return lambda chip: qkv_rope_write(
            empty(TOKENS, (heads + 2 * kv_heads) * dim, dtype=dtype),
            empty(TOKENS, dtype=torch.int64),
            *pages(kv_heads, dim, dtype),
            table,
            tuple(map(empty, norms)),
            1e-6,
        )

    layers: dict[str, tuple[tuple[int, int, int], int, tuple[int, ...]]] = {
        "qkv 32/8x64": ((32, 8, 64), 64, ()),
        "qkv 32/8x128": ((32, 8, 128), 128, ()),
        "qkv 32/8x128 head norm": ((32, 8, 128), 128, (128, 128)),
        "qkv 32/32x128 whole norm": ((32, 32, 128), 128, (4096, 4096)),
        "qkv 32/32x80 turns 32": ((32, 32, 80), 32, ()),
        "qkv 16/8x256 head norm": ((16, 8, 256), 256, (256, 256)),
    }
    return [Case(f"{name} {NAMES[dtype]}", call(*layer, dtype)) for name, layer in layers.items() for dtype in SHORT]
