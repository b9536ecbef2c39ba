"""The builds of the C++ step that this machine can make and run; tests of it run on each."""

from functools import cache

import pytest

from fairstep.kernels.cpu.build import CannotBuild, built, usable_levels
from fairstep.kernels.cpu.library import Library
from fairstep.machine import cpu_flags

LEVELS = [level.name for level in usable_levels(cpu_flags())]


@cache
def library(name: str) -> Library:
    """The build of a level; skips the test where there is no compiler for it."""
    [level] = [level for level in usable_levels(cpu_flags()) if level.name == name]
    try:
        return Library(level, built(level))
    except CannotBuild as reason:
        pytest.skip(str(reason))
