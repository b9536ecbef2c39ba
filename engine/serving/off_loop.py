"""Work on many tokens, done in a thread so that nobody else on the event loop waits for it."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MANY_TOKENS = 2_000  # a few milliseconds of work


async def off_loop_if(tokens: int, make: Callable[[], T]) -> T:
    """What `make` gives; it runs in a thread if it is about many tokens. Raises what it raises."""
    return make() if tokens < MANY_TOKENS else await asyncio.to_thread(make)
