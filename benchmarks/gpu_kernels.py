"""Part of gpu_check: the figures of benchmarks/kernels.py."""

from pathlib import Path
from typing import Any

import torch

import kernel_figures


def run(out: Path, rehearse: bool) -> dict[str, Any]:
    return kernel_figures.timed(rehearse) if torch.cuda.is_available() else kernel_figures.untimed(True)
