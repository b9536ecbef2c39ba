"""Figures read from what the compiler leaves, of kernels that have known ones."""

import pytest
import torch

from fairstep.kernels.triton.ahead import compiled, launches_of
from fairstep.kernels.triton.case import empty
from fairstep.kernels.triton.chips import CHIPS
from fairstep.kernels.triton.figures import Figures, figures_of, groups_pending, tiles_held
from small_kernels import copy, gather_dot, too_wide

NVIDIA = [name for name, chip in CHIPS.items() if chip.nvidia]


def gathered(chip: str, *, rows: int = 16, stages: int = 5) -> Figures:
    q = empty(rows, 128, dtype=torch.bfloat16)
    cache = empty(1000, 16, 128, dtype=torch.bfloat16)
    table = empty(64, dtype=torch.int32)
    [launch] = launches_of(
        lambda: gather_dot[(1,)](q, q, cache, table, 999, 2048, D=128, M=rows, N=64, num_stages=stages)
    )
    return figures_of(compiled(launch, CHIPS[chip]))


@pytest.mark.parametrize("chip", NVIDIA)
@pytest.mark.parametrize(("stages", "tiles"), [(3, 1), (5, 2), (7, 3)])
def test_a_page_table_halves_the_tiles_in_flight(chip: str, stages: int, tiles: int) -> None:
    told = gathered(chip, stages=stages)
    assert told.tiles == tiles
    assert (told.pending > 0) == (tiles > 1)
    assert told.shared >= tiles * 64 * 128 * 2


@pytest.mark.parametrize(("stages", "tiles"), [(1, 0), (2, 2)])
def test_on_amd_the_next_tile_waits_in_registers(stages: int, tiles: int) -> None:
    assert gathered("gfx942", stages=stages).tiles == tiles


@pytest.mark.parametrize(
    ("chip", "rows", "matrix"),
    [
        ("sm80", 64, "mma"),
        ("sm90", 16, "mma"),
        ("sm90", 64, "wgmma"),
        ("sm100", 64, "tcgen05"),
        ("gfx942", 16, "mfma"),
    ],
)
def test_matrix_instructions_are_known(chip: str, rows: int, matrix: str) -> None:
    assert gathered(chip, rows=rows, stages=5 if chip != "gfx942" else 2).matrix == matrix


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("step", [1, 3])
def test_loads_are_wide_where_they_can_be(chip: str, step: int) -> None:
    arguments = (empty(8192), empty(8192), step, 2048)
    [launch] = launches_of(lambda: copy[(2,)](*arguments, BLOCK=1024, num_warps=4 if CHIPS[chip].nvidia else 2))
    told = figures_of(compiled(launch, CHIPS[chip]))
    assert told.loads > 0 and told.wide == (told.loads if step == 1 else 0)
    assert told.matrix == "" and told.tiles == 0 and told.spilled == 0


@pytest.mark.parametrize(("chip", "block"), [("sm80", 16384), ("sm90", 16384), ("gfx942", 32768)])
def test_spills_are_seen(chip: str, block: int) -> None:
    [launch] = launches_of(lambda: too_wide[(1,)](empty(2 * block), empty(block), BLOCK=block, num_warps=1))
    assert figures_of(compiled(launch, CHIPS[chip])).spilled > 0


def test_only_pipelined_tiles_of_numbers_count() -> None:
    ttgir = """
    %q = ttg.local_alloc %1 : (tensor<16x128xbf16, #b>) -> !ttg.memdesc<16x128xbf16, #shared, #smem>
    %page = ttg.local_alloc : () -> !ttg.memdesc<1x64xi32, #shared1, #smem, mutable>
    %bar = ttg.local_alloc : () -> !ttg.memdesc<2x1xi64, #shared1, #smem, mutable>
    %k = ttg.local_alloc : () -> !ttg.memdesc<3x64x128xbf16, #shared, #smem, mutable>
    %v = ttg.local_alloc : () -> !ttg.memdesc<2x64x128xf16, #shared, #smem, mutable>
    """
    assert tiles_held(ttgir) == 2
    assert tiles_held("") == 0


def test_only_waits_of_innermost_loops_count() -> None:
    ttgir = """
    %0 = ttg.async_wait %a {num = 1 : i32}
    scf.for %s = %c0 to %n step %c1 {
      %1 = scf.for %i = %c0 to %n step %c64 iter_args(%x = %y) -> (i32) {
        %2 = ttg.async_wait %b, %c {num = 4 : i32}
        %3 = scf.if %d -> (i32) {
          %4 = ttg.async_wait %b {num = 3 : i32}
        } else {
        }
        scf.yield %x : i32
      }
      %5 = ttg.async_wait {num = 0 : i32}
    }
    """
    assert groups_pending(ttgir) == 3
    assert groups_pending("%0 = ttg.async_wait %a {num = 1 : i32}") == 0
