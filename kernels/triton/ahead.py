"""Kernels compiled for a chip that isn't there: what a launcher would launch is noted and compiled instead of run.

The launchers get tensors without memory, so that what is compiled is what they would launch on a GPU: the same types,
constants, options, and the same pointers and strides found to be divisible. Not with TRITON_INTERPRET set.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
from triton.compiler import ASTSource, CompiledKernel, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from .chips import Chip
from .compat import LAUNCH_OPTIONS


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch as a launcher asked for it. options: the kernel's constants by name among num_warps and its like."""

    kernel: JITFunction
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    grid: tuple[int, ...]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.kernel.fn.__name__).lstrip("_")


class Specialised(NamedTuple):
    """A kernel for arguments of one kind: their types, constants, and which are divisible by 16."""

    kernel: JITFunction
    signature: dict[str, str]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], Any]
    options: dict[str, Any]


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """All launches within it go into the list and nowhere else."""
    launches: list[Launch] = []
    run = JITFunction.run

    def note(kernel: JITFunction, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        bound = kernel.signature.bind_partial(*arguments, **{k: v for k, v in options.items() if k in kernel.arg_names})
        launches.append(Launch(kernel, arguments, options, grid(bound.arguments) if callable(grid) else tuple(grid)))

    JITFunction.run = note
    try:
        yield launches
    finally:
        JITFunction.run = run


def launches_of(call: Callable[[], object]) -> list[Launch]:
    """What `call` launches, in order."""
    with recorded() as launches:
        call()
    return launches


def specialised(launch: Launch, chip: Chip) -> Specialised:
    """What the just-in-time compiler would be told on the chip. Launches for which this is equal share a kernel."""
    kernel, backend = launch.kernel, make_backend(chip.target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    asked = {**LAUNCH_OPTIONS, **launch.options}
    bound, specialization, extra = bind(*launch.arguments, **asked)
    options, signature, constants, attributes = kernel._pack_args(backend, asked, bound, specialization, extra)
    return Specialised(kernel, signature, constants, attributes, options.__dict__)


def compiled(launch: Launch, chip: Chip) -> CompiledKernel:
    """As the just-in-time compiler would do on the chip. Raises what the compiler raises."""
    told = specialised(launch, chip)
    source = ASTSource(told.kernel, told.signature, told.constants, told.attributes)
    return triton.compile(source, target=chip.target, options=told.options)
