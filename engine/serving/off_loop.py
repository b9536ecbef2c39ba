"""Work on many tokens or bytes, done in a thread so that nobody else on the event loop waits for it."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MANY_TOKENS = 2_000  # a few milliseconds of work


async def off_loop_if(size: int, make: Callable[[], T], many: int = MANY_TOKENS) -> T:
    """What `make` gives or raises; it runs in a thread if it is about `many` tokens, bytes or the like, or more."""
    return make() if size < many else await asyncio.to_thread(make)
