"""Part of gpu_check: which driver and compiler there are, and whether what the one makes the other loads."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def add_one(numbers, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(numbers + places, tl.load(numbers + places, places < count) + 1.0, places < count)


def run(out: Path, rehearse: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "toolkit": torch.version.cuda or torch.version.hip,
        "driver": _driver(),
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        told["gpu"] = properties.name
        told["memory_gib"] = round(properties.total_memory / 2**30, 1)
        told["multiprocessors"] = properties.multi_processor_count
        numbers = torch.zeros(1000, device="cuda")
        kernel = add_one[(8,)](numbers, 1000, BLOCK=128)
        assert numbers.eq(1).all(), "a kernel ran, and its result is wrong"
        told["ptx"] = next((line for line in kernel.asm.get("ptx", "").splitlines() if ".version" in line), "")
    print("\n".join(f"{name:16} {value}" for name, value in told.items()))
    return told


def _driver() -> str:
    """As its own program tells it."""
    for program, arguments in (
        ("nvidia-smi", ["--query-gpu=driver_version,name,clocks.max.sm,power.limit", "--format=csv,noheader"]),
        ("rocm-smi", ["--showdriverversion"]),
    ):
        if path := shutil.which(program):
            done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
            return (done.stdout or done.stderr).strip()
    return ""
