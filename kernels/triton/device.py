"""What launches need to know of the chip a tensor lies on."""

from functools import lru_cache

import torch
import triton

TILE = 1024  # elements of a program that only goes through memory
TILE_WARPS = 2  # so that each thread has loads of 16 bytes, on AMD's 64 lanes too


@lru_cache
def arch_of(device: torch.device) -> str:
    """The chip as the tables of configs/ name it: "sm90", "gfx942"; "interpreted" for tensors of the CPU."""
    if device.type != "cuda":
        return "interpreted"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return str(properties.gcnArchName).split(":")[0]
    return f"sm{properties.major}{properties.minor}"


@lru_cache
def multiprocessors(device: torch.device) -> int:
    """How many programs run beside one another at least; 1 under the interpreter."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def tile_rows(rows: int, width: int, device: torch.device) -> int:
    """How many of `rows` rows of `width` elements, a power of two, a program takes that only goes through memory.

    On a GPU few, so that there are many programs, and the same for any number of rows, so that nothing is compiled
    anew; under the interpreter many, as there a program costs more than what it computes.
    """
    if device.type != "cpu":  # "meta" where kernels are compiled ahead
        return max(1, TILE // width)
    return max(1, min(65536 // width, int(triton.next_power_of_2(rows))))
