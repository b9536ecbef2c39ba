"""The figures as they are kept, compared and printed."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairstep.kernels.report import Row, faults, left_out, measure, read, table, worse
from fairstep.kernels.triton.case import Case
from fairstep.kernels.triton.cases import all_cases
from fairstep.kernels.triton.chips import CHIPS
from fairstep.kernels.triton.figures import Figures

FIGURES = Figures(registers=96, spilled=0, shared=40_000, tiles=2, pending=2, matrix="wgmma", wide=30, loads=32)


def test_rows_are_read_as_they_were_kept(tmp_path: Path) -> None:
    rows = [Row("attention", name, "sm90", FIGURES) for name in ("decode", "reduce")]
    path = tmp_path / "kept.jsonl"
    path.write_text("".join(f"{row.line()}\n" for row in rows))
    assert list(read(path).values()) == rows


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"registers": 97}, "registers 96 -> 97"),
        ({"spilled": 8}, "spilled 0 -> 8"),
        ({"shared": 40_001}, "shared 40000 -> 40001"),
        ({"tiles": 1}, "tiles 2 -> 1"),
        ({"pending": 0}, "pending 2 -> 0"),
        ({"matrix": "mma"}, "matrix wgmma -> mma"),
        ({"matrix": ""}, "matrix wgmma -> none"),
        ({"wide": 29}, "16-byte loads 30/32 -> 29/32"),
    ],
)
def test_what_gets_worse_is_told(change: dict[str, int | str], words: str) -> None:
    assert worse(FIGURES, replace(FIGURES, **change)) == [words]


def test_what_gets_better_is_fine() -> None:
    better = replace(FIGURES, registers=80, shared=30_000, tiles=3, pending=4, wide=60, loads=61)
    assert worse(FIGURES, FIGURES) == worse(FIGURES, better) == []


@pytest.mark.parametrize(
    ("chip", "change", "words"),
    [
        ("sm90", {}, []),
        ("sm90", {"spilled": 8}, ["spills 8 bytes"]),
        ("sm89", {"shared": 101_377}, ["takes 101377 bytes of shared memory, and sm89 has 101376"]),
        ("gfx942", {"shared": 65_537, "pending": 0}, ["takes 65537 bytes of shared memory, and gfx942 has 65536"]),
        ("sm90", {"tiles": 1}, ["holds 1 tiles, not 2"]),
        ("sm90", {"pending": 0}, ["waits for every copy before it computes"]),
        ("gfx942", {"pending": 0}, []),
    ],
)
def test_what_may_not_be_is_told(chip: str, change: dict[str, int], words: list[str]) -> None:
    case = Case("attention", lambda chip: None, tiles={"decode": 2})
    assert faults(Row("attention", "decode", chip, replace(FIGURES, **change)), case) == words
    assert faults(Row("attention", "reduce", chip, replace(FIGURES, tiles=0, pending=0)), case) == []


def test_a_case_is_measured_and_printed() -> None:
    rows = measure("norm 2048 bf16", "sm90")
    assert [row.key for row in rows] == [("norm 2048 bf16", "add_norm", "sm90")]
    heading, line = table(rows)
    assert heading.split()[:3] == ["chip", "registers", "spilled"]
    assert line.startswith("norm 2048 bf16: add_norm  sm90") and len(line) == len(heading)


def test_a_kernel_that_is_launched_twice_is_one_row() -> None:
    assert [row.kernel for row in measure("kv write 8x128 bf16", "sm90")] == ["kv_write"]


def test_what_is_left_out_is_told_with_its_reason() -> None:
    case = Case("wide heads", lambda chip: None, left_out={"sm89": "no room"})
    assert list(left_out({case.name: case}, CHIPS)) == ["wide heads: not for sm89: no room"]
    assert list(left_out(all_cases(), [])) == []
