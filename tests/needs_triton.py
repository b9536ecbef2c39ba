"""Test folders whose modules import triton: where it is missing, each of them is one skipped test with the reason."""

import importlib.util
from pathlib import Path

import pytest

REASON = "triton is not installed (it is made for Linux only)"


class WithoutTriton(pytest.Module):
    def collect(self) -> list[pytest.Item]:
        return [Skipped.from_parent(self, name="all")]


class Skipped(pytest.Item):
    def runtest(self) -> None:
        pytest.skip(REASON)


def module_without_triton(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """For a conftest's pytest_pycollect_makemodule: None where triton can be imported."""
    if importlib.util.find_spec("triton") is not None:
        return None
    module: pytest.Module = WithoutTriton.from_parent(parent, path=path)
    return module
