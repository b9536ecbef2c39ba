"""How a GPU's memory is parted: what the largest step takes is measured, and the rest keeps keys and values. Pure.

Where that is too little a smaller plan is made, and told; where nothing fits, the error says what to change.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ConfigError
from .kv import LEAST_PAGES

LEFT_ALONE = 16  # one part in so many of the whole memory: for recorded steps, fragments and what libraries take later
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of a device: in all, and free once the weights are there."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """kv_memory: bytes for keys and values. notes: for people, where it is less than was asked for."""

    kv_memory: int
    seats: int
    step_tokens: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the settings ask for. kv_memory: bytes, None: all that is left. page: bytes of one page."""

    kv_memory: int | None
    page: int
    seats: int
    step_tokens: int


def plan_memory(wish: Wish, room: Room, takes: Callable[[int], int | None]) -> MemoryPlan:
    """The largest plan that fits: steps are halved first, then seats.

    takes: bytes that a step of so many tokens takes beside weights and pages; None if it runs out of memory. Raises
    ConfigError.
    """
    tokens = wish.step_tokens
    while (left := _left(room, takes(tokens))) < wish.page * max(LEAST_PAGES, wish.seats) and tokens > wish.seats:
        tokens = max(tokens // 2, wish.seats)
    pages = left // wish.page
    if pages < LEAST_PAGES:
        raise ConfigError(
            f"the GPU has {_gib(room.free)} of {_gib(room.total)} free beside the weights, of which a step of {tokens} "
            f"tokens leaves none for keys and values: lower max_seats ({wish.seats}), or take a smaller model or dtype"
        )
    seats = min(wish.seats, pages)
    kv_memory = min(wish.kv_memory or left, left)
    return MemoryPlan(kv_memory, seats, tokens, _notes(wish, kv_memory, seats, tokens))


def _left(room: Room, step: int | None) -> int:
    """For pages, where a step takes so much."""
    return 0 if step is None else max(0, room.free - step - room.total // LEFT_ALONE)


def _notes(wish: Wish, kv_memory: int, seats: int, tokens: int) -> tuple[str, ...]:
    notes = []
    if wish.kv_memory and kv_memory < wish.kv_memory:
        notes.append(f"kv_memory is {_gib(wish.kv_memory)}, but the GPU has room for {_gib(kv_memory)}: that is used")
    if tokens < wish.step_tokens:
        notes.append(f"the GPU's memory holds no steps of {wish.step_tokens} tokens: step_tokens is {tokens}")
    if seats < wish.seats:
        notes.append(f"the GPU's memory holds no pages for {wish.seats} sequences: max_seats is {seats}")
    return tuple(notes)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
