"""A loaded model's pages on a GPU: the largest step is run once to see what it takes, then pages get what is left."""

from collections.abc import Callable

import torch

from ..door import Sampling
from ..errors import ConfigError
from ..stepping.plan import Runner, StepPlan
from ..stepping.settings import StepSettings
from .kv import LEAST_PAGES, KVMemory
from .memory_plan import Room
from .runner import blank_slice

DRAWN_BY = Sampling(temperature=1.0, top_k=50, top_p=0.9)  # what takes most memory to draw


def free_room(device: torch.device) -> Room:
    """What is free, with all that is held and not used given back to the driver."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return Room(total, free)


def step_bytes(make_runner: Callable[[], Runner], settings: StepSettings, device: torch.device) -> int | None:
    """What the largest steps under `settings` take beside weights and pages, a runner's own memory included.

    None if they run out of memory.
    """
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    try:
        runner = make_runner()
        for plan in largest_plans(settings):
            runner.launch(plan).result()
    except torch.cuda.OutOfMemoryError:
        return None
    return torch.cuda.max_memory_allocated(device) - before


def largest_plans(settings: StepSettings) -> tuple[StepPlan, StepPlan]:
    """All seats decode; then they compute as many prompt tokens as a step may have, and all draw.

    What decodes need beside is there already when prompts are computed.
    """
    length = min(settings.step_tokens // settings.seats, settings.context)
    return _plan(1, settings), _plan(length, settings)


def _plan(length: int, settings: StepSettings) -> StepPlan:
    """Slices of so many tokens in all seats, on the null page."""
    pieces = [blank_slice(length, settings.page_size, DRAWN_BY, seat) for seat in range(settings.seats)]
    return StepPlan(0, tuple(pieces))


def allocate(make: Callable[[int], KVMemory], pages: int) -> KVMemory:
    """The memory of so many pages, or of somewhat fewer where the device does not give it in one piece.

    Raises ConfigError below LEAST_PAGES.
    """
    while pages >= LEAST_PAGES:
        try:
            return make(pages)
        except torch.cuda.OutOfMemoryError:
            pages -= max(1, pages // 10)
    raise ConfigError("the GPU gives no memory for keys and values: something else uses it")
