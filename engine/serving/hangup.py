"""SIGHUP: tenants and models are read again from their files, while the server serves. Knows no HTTP."""

import asyncio
import logging
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ConfigError
from .fleet import Fleet
from .models_file import read_models
from .tenant_book import TenantBook

log = logging.getLogger(__name__)


@contextmanager
def hangup_reloads(
    fleet: Fleet, book: TenantBook | None, models: str | None, opening: asyncio.Task[None]
) -> Generator[None, None, None]:
    """models: their file, read once `opening` is over. Without any file the signal ends the process, as elsewhere."""
    if book is None and models is None:
        yield
        return
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[None]] = set()  # a task that nobody holds may be collected

    async def reload() -> None:
        if book is not None and await asyncio.to_thread(book.reload):
            use(book)
        if models is not None:
            await asyncio.wait([opening])  # names do not move while the first engines load
            await follow(fleet, Path(models))
            if book is not None:
                use(book)  # also in what was being loaded when it was read

    def use(book: TenantBook) -> None:
        for served in fleet.models:
            served.engine.tenants = book.current

    def begin() -> None:
        task = asyncio.create_task(reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, begin)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for task in reloads:
            task.cancel()


async def follow(fleet: Fleet, path: Path) -> None:
    """Serve what a models file names. If it is wrong all stays as it was, and the log says what is wrong."""
    try:
        wanted = await asyncio.to_thread(read_models, path)
    except ConfigError as problem:
        log.error("the models stay as they were: %s", problem)
        return
    await fleet.follow(wanted)
