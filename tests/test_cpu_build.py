"""The C++ step is compiled once, for what a CPU can; where that fails a line says why."""

import ctypes
import stat
from pathlib import Path

import pytest

from cpu_libraries import LEVELS, library
from fairstep.kernels.cpu import build
from fairstep.kernels.cpu.build import CannotBuild, Level, built, usable_levels
from fairstep.kernels.cpu.library import CLayer, CLinear, CModel, CStep, Library, best_library

ZEN4 = frozenset(["avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_vnni", "sse4_2"])
PORTABLE = build.LEVELS[-1]


def compiler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler of our own as CXX, in sh."""
    file = folder / "compiler"
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(file))


COUNTS = 'echo once >> "$(dirname "$0")/calls"; for last; do :; done; echo library > "$last"'


def test_levels_are_those_of_the_cpu_best_first() -> None:
    def names(*lost: str) -> list[str]:
        return [level.name for level in usable_levels(ZEN4 - set(lost))]

    assert names() == ["avx512_bf16", "avx512", "avx2", "portable"]
    assert names("avx512_bf16") == ["avx512", "avx2", "portable"]
    assert names("avx512vl") == ["avx2", "portable"]
    assert names("fma") == [level.name for level in usable_levels(frozenset())] == ["portable"]


def test_a_level_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, COUNTS, monkeypatch)
    told: list[str] = []
    cache = tmp_path / "new" / "cache"
    first = built(PORTABLE, lambda: told.append("compiling"), cache)
    assert built(PORTABLE, lambda: told.append("compiling"), cache) == first
    assert told == ["compiling"] and (tmp_path / "calls").read_text() == "once\n"
    assert sorted(cache.iterdir()) == [first] and first.read_text() == "library\n"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_another_level_or_source_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, COUNTS, monkeypatch)
    cache = tmp_path / "cache"
    copy = tmp_path / "source"
    copy.mkdir()
    for path in build.SOURCE.iterdir():
        if path.suffix in (".h", ".cpp"):
            (copy / path.name).write_bytes(path.read_bytes())
    files = {built(PORTABLE, cache=cache), built(Level("portable", frozenset(), ("-g",)), cache=cache)}
    monkeypatch.setattr(build, "SOURCE", copy)
    files.add(built(PORTABLE, cache=cache))
    assert len(files) == 2  # the same source elsewhere is the same
    (copy / "vec.h").write_text("// changed\n", encoding="utf-8")
    files.add(built(PORTABLE, cache=cache))
    assert len(files) == 3


def test_without_a_compiler_a_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotBuild, match=r"no C\+\+ compiler: none of g\+\+, c\+\+, clang\+\+ is installed"):
        built(PORTABLE, cache=tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CannotBuild, match="CXX is no-such-compiler, which is not installed"):
        built(PORTABLE, cache=tmp_path)


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, 'echo "warning: odd" >&2; echo "step.cpp:1: error: no such thing" >&2; exit 1', monkeypatch)
    with pytest.raises(CannotBuild, match=r"compiler failed: step\.cpp:1: error: no such thing"):
        built(PORTABLE, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    compiler(tmp_path, "exit 3", monkeypatch)
    with pytest.raises(CannotBuild, match="compiler failed: exit status 3"):
        built(PORTABLE, cache=tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, COUNTS, monkeypatch)
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotBuild, match=r"the cache folder .*/file/cache cannot be written: Not a directory"):
        built(PORTABLE, cache=tmp_path / "file" / "cache")


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, COUNTS, monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert built(PORTABLE).parent == tmp_path / "xdg" / "fairstep" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert built(PORTABLE).parent == tmp_path / "home" / ".cache" / "fairstep" / "kernels"


def test_the_next_level_serves_where_a_compiler_is_too_old_for_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = library("portable")
    real = built(good.level)
    script = 'for word; do case "$word" in -mavx*) echo "error: too new: $word" >&2; exit 1;; esac; last=$word; done\n'
    compiler(tmp_path, script + f'cp {real} "$last"', monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert best_library(ZEN4).level.name == "portable"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    compiler(tmp_path, 'echo "error: none at all" >&2; exit 1', monkeypatch)
    with pytest.raises(CannotBuild, match="none at all"):
        best_library(ZEN4)


def test_a_file_that_is_no_library_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "step.so").write_text("no library")
    with pytest.raises(CannotBuild, match=r"step\.so cannot be loaded .*: delete it, and it is built anew"):
        Library(PORTABLE, tmp_path / "step.so")


@pytest.mark.parametrize("level", LEVELS)
def test_both_sides_agree_on_the_structs(level: str) -> None:
    for place, struct in enumerate((CLinear, CLayer, CModel, CStep)):
        assert library(level).struct_size(place) == ctypes.sizeof(struct), struct
