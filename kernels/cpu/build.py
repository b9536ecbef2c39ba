"""Compiles the C++ step with the machine's own compiler, once for each source, CPU level and flags, into a user cache.

A plain C ABI and one compiler call: torch's extension machinery would take ten times as long, most of it for headers.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent
FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-fopenmp")
COMPILERS = ("g++", "c++", "clang++")
SECONDS = 300


class CannotBuild(Exception):
    """Why there is no library, in a line for people."""


@dataclass(frozen=True, slots=True)
class Level:
    """What a build may use of a CPU. needs: flags as /proc/cpuinfo names them."""

    name: str
    needs: frozenset[str]
    flags: tuple[str, ...]


_AVX2 = frozenset({"avx2", "fma"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_AVX512_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma")
LEVELS = (
    Level("avx512_bf16", _AVX512 | {"avx512_bf16", "avx512_vnni"}, (*_AVX512_FLAGS, "-mavx512bf16", "-mavx512vnni")),
    Level("avx512", _AVX512, _AVX512_FLAGS),
    Level("avx2", _AVX2, ("-mavx2", "-mfma")),
    Level("portable", frozenset(), ()),
)


def usable_levels(cpu_flags: frozenset[str]) -> tuple[Level, ...]:
    """The levels that a CPU can run, best first."""
    return tuple(level for level in LEVELS if level.needs <= cpu_flags)


def nothing_to_say() -> None:
    """What is called before a compilation nobody waits for."""


def built(level: Level, compiling: Callable[[], None] = nothing_to_say, cache: Path | None = None) -> Path:
    """The shared library for a level, compiled now if it isn't in the cache yet, after a call of `compiling`.

    cache: the folder; None is the user's. Raises CannotBuild.
    """
    if platform.system() != "Linux":
        raise CannotBuild(f"the C++ step is built on Linux only, and this is {platform.system()}")
    command = [_compiler(), *FLAGS, *level.flags]
    file = (cache or _cache()) / f"step-{level.name}-{_digest(command)}.so"
    if not file.is_file():
        compiling()
        _compile(command, file)
    return file


def _compiler() -> str:
    """CXX if it is set, else the first that is installed."""
    asked = os.environ.get("CXX")
    found = next(filter(None, map(shutil.which, (asked,) if asked else COMPILERS)), None)
    if found is None:
        looked = f"CXX is {asked}, which is not" if asked else f"none of {', '.join(COMPILERS)} is"
        raise CannotBuild(f"no C++ compiler: {looked} installed")
    return found


def _digest(command: list[str]) -> str:
    """What a built file depends on."""
    whole = hashlib.sha256("\0".join([platform.machine(), *command]).encode())
    for path in sorted(SOURCE.iterdir()):
        if path.suffix in (".h", ".cpp"):
            whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:20]


def _compile(command: list[str], file: Path) -> None:
    """Several processes may do so at once: each has a file of its own, and the last to be done is kept."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=file.parent, suffix=".part")
        os.close(handle)
    except OSError as error:
        raise CannotBuild(f"the cache folder {file.parent} cannot be written: {error.strerror}") from error
    try:
        _run([*command, str(SOURCE / "step.cpp"), "-o", temporary])
        os.replace(temporary, file)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{command[0]} did not run: {error}") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or [f"exit status {done.returncode}"]
        raise CannotBuild(f"{command[0]} failed: {errors[0]}")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "fairstep" / "kernels"
