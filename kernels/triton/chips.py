"""The chips that kernels are compiled for, whether one is there or not. Limits are those of the makers' manuals."""

from dataclasses import dataclass

from triton.backends.compiler import GPUTarget

KIB = 1024


@dataclass(frozen=True, slots=True)
class Chip:
    """One architecture, named as in configs/. lanes: threads of a warp. shared: bytes of shared memory (LDS) that a
    program may have."""

    name: str
    backend: str
    arch: int | str
    lanes: int
    shared: int

    @property
    def target(self) -> GPUTarget:
        return GPUTarget(self.backend, self.arch, self.lanes)

    @property
    def nvidia(self) -> bool:
        return self.backend == "cuda"


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("sm80", "cuda", 80, 32, 163 * KIB),  # A100
        Chip("sm89", "cuda", 89, 32, 99 * KIB),  # L4, L40S, RTX 40
        Chip("sm90", "cuda", 90, 32, 227 * KIB),  # H100, H200
        Chip("sm100", "cuda", 100, 32, 227 * KIB),  # B200
        Chip("gfx942", "hip", "gfx942", 64, 64 * KIB),  # MI300X, MI325X
    )
}
