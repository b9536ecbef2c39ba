"""Kernels as triton's interpreter runs them, on any machine: this folder is a pytest process of its own.

Whether kernels are interpreted is settled when triton is first imported, for the whole process.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import on_device
from needs_triton import module_without_triton

assert "triton" not in sys.modules, "triton was imported before TRITON_INTERPRET was set: run tests/interpreted alone"

if on_device.DEVICE:
    on_device.install()
    collect_ignore = on_device.INTERPRETERS_OWN
else:
    os.environ["TRITON_INTERPRET"] = "1"

if importlib.util.find_spec("triton") is not None and not on_device.DEVICE:
    import bf16_shim
    import loop_shim
    import quick_calls

    bf16_shim.install()
    loop_shim.install()
    quick_calls.install()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return module_without_triton(module_path, parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What overflows becomes infinite on a GPU without a word; numpy, which interprets, would warn."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"))
