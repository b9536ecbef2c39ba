"""The same tests on a GPU: FAIRSTEP_KERNEL_DEVICE=cuda python -m pytest tests/interpreted

The tests' tensors stay on the CPU. What memory a launch is given goes to the GPU as it lies, strides, overlaps and NaNs
included, and comes back after it. Launch figures are those of the GPU.
"""

import os
from typing import Any

import torch
from torch import Tensor

DEVICE = os.environ.get("FAIRSTEP_KERNEL_DEVICE", "")
INTERPRETERS_OWN = ["test_bf16_shim.py", "test_loop_shim.py", "test_quick_calls.py"]


def install() -> None:
    """For this process. Before any module of kernels is imported that launches."""
    from triton.runtime.jit import JITFunction

    from fairstep.kernels.triton import device as chosen

    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # what it is anyway; unset, triton warns
    there = torch.device(DEVICE)
    run = JITFunction.run
    arch_of, multiprocessors, tile_rows = chosen.arch_of, chosen.multiprocessors, chosen.tile_rows
    chosen.arch_of = lambda device: arch_of(there)
    chosen.multiprocessors = lambda device: multiprocessors(there)
    chosen.tile_rows = lambda rows, width, device: tile_rows(rows, width, there)

    def run_there(kernel: Any, *arguments: Any, **options: Any) -> object:
        lent = Lent(there)
        result = run(kernel, *map(lent.lend, arguments), **{name: lent.lend(value) for name, value in options.items()})
        lent.give_back()
        return result

    JITFunction.run = run_there


class Lent:
    """Tensors' memory while it is elsewhere. Tensors that share memory share it there too."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}  # by address: the bytes here and there

    def lend(self, value: Any) -> Any:
        """What is no tensor of the CPU stays as it is."""
        if not isinstance(value, Tensor) or value.device.type != "cpu":
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in self.pairs:
            here = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.pairs[storage.data_ptr()] = (here, torch.empty_like(here, device=self.device).copy_(here))
        there = self.pairs[storage.data_ptr()][1].untyped_storage()
        empty = torch.empty(0, dtype=value.dtype, device=self.device)
        return empty.set_(there, value.storage_offset(), value.shape, value.stride())

    def give_back(self) -> None:
        for here, there in self.pairs.values():
            here.copy_(there)
