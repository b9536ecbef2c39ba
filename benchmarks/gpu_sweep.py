"""Part of gpu_check: launch figures of attention found by timing, and written as a file of kernels/triton/configs.

From what the table says now one figure is changed at a time, and what is faster stays: all combinations take hours.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import torch

from attention_work import AttentionTensors, AttentionWork
from fairstep.kernels.triton.attention import AttentionConfigs
from fairstep.kernels.triton.configs import config_for
from fairstep.kernels.triton.configs.attention import AttentionConfig, Variant
from fairstep.kernels.triton.device import arch_of

SECONDS = 170  # what is not reached by then stays as it is
GAIN = 0.98  # of the best time, from which a change is taken for faster
CHOICES = {
    "block_n": (16, 32, 64, 128),
    "num_stages": (2, 3, 5, 7, 9),
    "num_warps": (2, 4, 8),
    "block_m": (16, 32, 64, 128),
}
WORKS = {
    "decode": lambda dim: AttentionWork(64, 1, 4096, dim=dim),
    "prefill": lambda dim: AttentionWork(1, 4096, 4096, dim=dim),
}
ORDER: tuple[tuple[Variant, int], ...] = (
    ("decode", 128),
    ("prefill", 128),
    ("decode", 64),
    ("prefill", 64),
    ("decode", 256),
    ("prefill", 256),
)
Key = tuple[Variant, int]
Timer = Callable[[AttentionConfig], float]


def run(out: Path, rehearse: bool) -> dict[str, Any]:
    arch = "sm90" if rehearse else arch_of(torch.device("cuda"))
    ends = time.monotonic() + SECONDS
    table: dict[Key, AttentionConfig] = {}
    told: dict[str, Any] = {}
    for variant, dim in ORDER:
        before = config_for(arch, dim, 4, variant)
        timer = rehearsed if rehearse else gpu_timer(variant, dim)
        best, times = improved(before, variant, timer, lambda: time.monotonic() > ends)
        table[variant, dim] = best
        told[f"{variant} {dim}"] = {
            "before": astuple(before),
            "best": astuple(best),
            "us": {str(astuple(config)): round(1e6 * took, 1) for config, took in times.items()},
        }
        print(f"{variant:8} {dim:4} {astuple(before)} {1e6 * times.get(before, 0):.1f} us", end=" -> ")
        print(f"{astuple(best)} {1e6 * times.get(best, 0):.1f} us", flush=True)
    where = "nowhere" if rehearse else torch.cuda.get_device_name()
    path = out / f"{arch}.py"
    path.write_text(source(table, where), encoding="utf-8")
    return {"written": str(path), "found": told}


def improved(
    config: AttentionConfig, variant: Variant, timer: Timer, over: Callable[[], bool]
) -> tuple[AttentionConfig, dict[AttentionConfig, float]]:
    """The fastest reached by changing one figure at a time, and all times in seconds; infinite where it didn't run."""
    times: dict[AttentionConfig, float] = {}

    def took(candidate: AttentionConfig) -> float:
        if candidate not in times:
            times[candidate] = float("inf") if over() else timer(candidate)
        return times[candidate]

    best, moved = config, True
    while moved and not over():
        moved = False
        for candidate in neighbours(best, variant):
            if took(candidate) < GAIN * took(best):
                best, moved = candidate, True
                break
    return best, times


def neighbours(config: AttentionConfig, variant: Variant) -> Iterator[AttentionConfig]:
    """Those that differ in one figure. A decode's rows are those of its group: they are no choice."""
    for name, values in CHOICES.items():
        if name == "block_m" and variant == "decode":
            continue
        for value in values:
            if value != getattr(config, name):
                yield replace(config, **{name: value})


def gpu_timer(variant: Variant, dim: int) -> Timer:
    from gpu_timing import seconds

    tensors: AttentionTensors = WORKS[variant](dim).tensors(torch.device("cuda"))
    default = {kind: config_for(arch_of(tensors.q.device), dim, 4, kind) for kind in ("decode", "prefill")}

    def timer(config: AttentionConfig) -> float:
        try:
            return seconds(lambda: tensors.ours(AttentionConfigs(**{**default, variant: config})))
        except Exception as error:  # it doesn't compile, or needs more than the chip has
            print(f"    {astuple(config)}: {type(error).__name__}", flush=True)
            return float("inf")

    return timer


def rehearsed(config: AttentionConfig) -> float:
    """A time without a GPU: it falls towards tiles of 64 positions and 4 warps."""
    return 1e-4 * (1 + abs(config.block_n - 64) / 64 + abs(config.num_warps - 4) / 4)


def source(table: dict[Key, AttentionConfig], where: str) -> str:
    """As a file of configs/."""
    lines = [
        f'    ("{variant}", {dim}): AttentionConfig(block_m={each.block_m}, block_n={each.block_n}, '
        f"num_warps={each.num_warps}, num_stages={each.num_stages}),"
        for (variant, dim), each in sorted(table.items())
    ]
    return (
        f'"""Found by timing on {where}: benchmarks/gpu_check.py."""\n\n'
        "from .attention import AttentionConfig, Table\n\n"
        "ATTENTION: Table = {\n" + "\n".join(lines) + "\n}\n"
    )
