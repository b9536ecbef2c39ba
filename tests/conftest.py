"""Shared by all tests: takes the repository root off sys.path first, so that `kernels/` and `engine/` there can
shadow nothing (Hugging Face's package `kernels` has that name)."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

# as the worker does, before any test imports torch: models in the tests share the cores with workers
os.environ.setdefault("GOMP_SPINCOUNT", "4000")

from hypothesis import HealthCheck, settings  # noqa: E402 (the path comes first)

# a slow machine is no finding; on a fresh clone hypothesis also builds its tables first
settings.register_profile("fairstep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fairstep")
