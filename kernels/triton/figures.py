"""What the compiler says of a kernel: registers, spills, shared memory, tiles in flight, instructions.

Read from the files it leaves: TTGIR for the pipeline, PTX and the cubin (by cuobjdump), or AMD's assembly.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import triton
from triton.compiler import CompiledKernel

MATRIX = {"wgmma": r"\bwgmma\.mma_async", "tcgen05": r"\btcgen05\.mma", "mma": r"\bmma\.sync", "mfma": r"\bv_mfma_"}
WIDE = 16  # bytes that one thread loads with one instruction at best

_TILE = re.compile(r"ttg\.local_alloc : \(\) -> !ttg\.memdesc<(\d+)x\d+x\d+x(?:bf|f)\d")
_FILLED = re.compile(r"ttg\.local_store .*!ttg\.memdesc<\d+x\d+x(?:bf|f)\d\w*, [^>]*mutable>")
_WAIT = re.compile(r"ttg\.async_wait .*\{num = (\d+)")
_PTX_LOAD = re.compile(r"\bld\.global\S*?(?:\.v(\d))?\.[a-z](\d+)\b")
_PTX_COPY = re.compile(r"\bcp\.async\.c[ag]\.\S+ \[.*?\], \[.*?\], (?:0x)?(\w+)")
_AMD_LOAD = re.compile(r"\b(?:buffer|global)_load_(?:(dword)(?:x(\d))?|[us]?(short|byte))")


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one kernel on one chip.

    registers: 32-bit ones of a thread. spilled: bytes a thread keeps in memory for want of them. shared: bytes of a
    program. tiles: how many of a loop's tiles of keys and values are held at once, the one computed with included,
    and of the operand with the fewest; 0 where nothing is pipelined. pending: groups of copies that may be on their
    way while an innermost loop waits. matrix: its matrix instructions. wide, loads: those of 16 bytes, and all.
    """

    registers: int
    spilled: int
    shared: int
    tiles: int
    pending: int
    matrix: str
    wide: int
    loads: int


def figures_of(kernel: CompiledKernel) -> Figures:
    """Raises ValueError where the compiler's files don't say what is looked for."""
    ttgir = kernel.asm["ttgir"]
    nvidia = "ptx" in kernel.asm
    text = kernel.asm["ptx" if nvidia else "amdgcn"]
    registers, spilled = _cubin_usage(kernel.asm["cubin"]) if nvidia else _amd_usage(text)
    loads = list(_ptx_loads(text) if nvidia else _amd_loads(text))
    return Figures(
        registers=registers,
        spilled=spilled,
        shared=kernel.metadata.shared,
        tiles=tiles_held(ttgir),
        pending=groups_pending(ttgir),
        matrix="+".join(name for name, pattern in MATRIX.items() if re.search(pattern, text)),
        wide=loads.count(WIDE),
        loads=len(loads),
    )


def tiles_held(ttgir: str) -> int:
    """Tiles in shared memory, and one more where the next waits in registers to be stored there."""
    held = [int(count) for count in _TILE.findall(ttgir)]
    return min(held) + bool(_FILLED.search(ttgir)) if held else 0


def groups_pending(ttgir: str) -> int:
    """The fewest that any wait of an innermost loop allows; 0 where none waits."""
    waits = [int(count) for loop in _innermost_loops(ttgir) for line in loop for count in _WAIT.findall(line)]
    return min(waits, default=0)


def _innermost_loops(ttgir: str) -> Iterator[list[str]]:
    """Each loop's lines; it ends with a brace as far to the left as it began."""
    indent = 0
    lines: list[str] | None = None
    for line in ttgir.splitlines():
        here = len(line) - len(line.lstrip())
        if "scf.for" in line or "scf.while" in line:
            indent, lines = here, []  # what was begun has a loop within
        elif lines is not None and here <= indent and line.lstrip().startswith("}"):
            yield lines
            lines = None
        elif lines is not None:
            lines.append(line)


def _cubin_usage(cubin: bytes) -> tuple[int, int]:
    """Registers, and bytes on the stack."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        told = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)], capture_output=True, text=True, check=True
        ).stdout
    return _number(r"REG:(\d+)", told), _number(r"STACK:(\d+)", told)


def _amd_usage(text: str) -> tuple[int, int]:
    """Vector registers, those for matrices included, and bytes of scratch memory."""
    spilled = _number(r"\.private_segment_fixed_size: *(\d+)", text)
    return _number(r"\.vgpr_count: *(\d+)", text), max(spilled, 4 * _number(r"\.vgpr_spill_count: *(\d+)", text))


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"the compiler says nothing like {pattern!r}")
    return int(found[1])


def _ptx_loads(text: str) -> Iterator[int]:
    """Bytes of each load from global memory."""
    for count, bits in _PTX_LOAD.findall(text):
        yield int(count or 1) * int(bits) // 8
    for size in _PTX_COPY.findall(text):
        yield int(size, 16)


def _amd_loads(text: str) -> Iterator[int]:
    for dword, count, small in _AMD_LOAD.findall(text):
        yield 4 * int(count or 1) if dword else {"short": 2, "byte": 1}[small]
