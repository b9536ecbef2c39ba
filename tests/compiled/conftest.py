"""Kernels as the compiler makes them, for chips that need not be there: this folder is a pytest process of its own.

What was compiled is found again in .cache/triton of the checkout, unless TRITON_CACHE_DIR says otherwise.
"""

import importlib.util
import os
from pathlib import Path

import pytest

from needs_triton import module_without_triton

ROOT = Path(__file__).resolve().parents[2]

assert os.environ.get("TRITON_INTERPRET", "0") == "0", "TRITON_INTERPRET is set, and nothing can be compiled under it"
os.environ.setdefault("TRITON_CACHE_DIR", str(ROOT / ".cache" / "triton"))

if importlib.util.find_spec("triton") is None:
    collect_ignore = ["small_kernels.py"]


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return module_without_triton(module_path, parent)
