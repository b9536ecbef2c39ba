"""Shared by all tests: takes the repository root off sys.path first, so that `kernels/` and `engine/` there can
shadow nothing (Hugging Face's package `kernels` has that name)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
