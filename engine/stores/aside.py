"""Work that may wait for a disk, done one by one in a thread of its own, so that the event loop never waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import StoreFailed

PATIENCE_SECONDS = 5.0  # for the work before it, too

T = TypeVar("T")


class Aside:
    """Owner of the thread. patience: seconds after which work is given up, begun or not, so that nobody waits on."""

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fairstep-store")

    async def run(self, action: Callable[[], T]) -> T:
        """What `action` returns or raises. Raises StoreFailed when it takes too long; if not begun it never begins."""
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.get_running_loop().run_in_executor(self._thread, action)
        except TimeoutError:
            raise StoreFailed(f"the store did not answer within {self._patience:g} s") from None

    def close(self) -> None:
        """End after what has begun."""
        self._thread.shutdown(cancel_futures=True)
