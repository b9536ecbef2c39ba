"""`fairstep serve`: listens, loads, serves, and ends in order on SIGINT or SIGTERM.

The port is taken before anything loads. The HTTP side is imported in a thread, so that the worker, which loads on
another core, does not wait for it.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from .. import __version__
from ..async_engine import AsyncEngine
from ..config import ServeConfig
from ..door import Ready
from ..engine import quiet
from ..garbage import settle_garbage
from ..metrics import Metrics
from ..worker import ProgressCall, nothing
from .draining import Draining
from .entrance import Entrance
from .fleet import Fleet
from .hangup import hangup_reloads
from .listener import BACKLOG, listen, url_of
from .models import Models, Served
from .progress import LoadingDisplay
from .settings import Settings
from .terms_of_use import NO_TERMS, TermsOfUse, admission_of, terms_of_use

if TYPE_CHECKING:
    import uvicorn

COMPUTED_BY = {
    "fairstep": "fairstep's decoder",
    "cpu": "fairstep's C++ step",
    "triton": "fairstep's Triton kernels",
    "transformers": "transformers' own code",
}
LAST_SECONDS = 1  # that answers have for their last words when their time is up


def run_server(sources: Mapping[str, str], settings: Settings) -> None:
    """Serve models by name until SIGINT or SIGTERM. Raises ConfigError, ModelError or EngineDead."""
    config = settings.config
    logging.basicConfig(level=config.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    with ExitStack() as kept:
        terms = kept.enter_context(terms_of_use(config))
        listener = kept.enter_context(listen(config.host, config.port))
        runner = kept.enter_context(asyncio.Runner(loop_factory=_new_event_loop))
        say(f"fairstep {__version__} serves {', '.join(sources)}\n{settings.table()}")
        runner.run(serve_on(listener, sources, config, terms, loaded=settle_garbage))


async def serve_on(
    listener: socket.socket,
    sources: Mapping[str, str],
    config: ServeConfig,
    terms: TermsOfUse = NO_TERMS,
    *,
    loaded: Callable[[], None] = nothing,
) -> None:
    """Serve models by name on a listening socket until a signal says to stop; 503 while they load.

    SIGHUP reads tenants and models anew. loaded: called once, before the first request is let in.
    """
    display = LoadingDisplay()

    def make(name: str, source: str, progress: ProgressCall = quiet) -> AsyncEngine:
        return AsyncEngine(
            source,
            config.engine(),
            in_process=config.in_process,
            model_name=name,
            metrics=Metrics(name, config.metrics_prefix, config.metrics_tenants),
            progress=progress,
            tenants=terms.tenants.current if terms.tenants else None,
        )

    fleet = Fleet(Models(*(Served(name, make(name, source, display)) for name, source in sources.items())), make)
    entrance = Entrance()
    opening = asyncio.create_task(_open(fleet.models, entrance, config, terms, display, url_of(listener), loaded))
    try:
        draining = Draining(entrance, config.drain_seconds)
        server = await asyncio.to_thread(_http_server, draining)
        opening.add_done_callback(lambda task: _end_if_failed(server, task))
        with _signals_end(server, draining), hangup_reloads(fleet, terms.tenants, config.models, opening):
            await server.serve(sockets=[listener])
    finally:
        opening.cancel()
        await fleet.stop()
    with suppress(asyncio.CancelledError):
        await opening


async def _open(
    models: Models,
    entrance: Entrance,
    config: ServeConfig,
    terms: TermsOfUse,
    display: LoadingDisplay,
    url: str,
    loaded: Callable[[], None],
) -> None:
    """Load, then let requests in."""
    try:
        for served in models:
            await served.engine.start()
    finally:
        display.close()
    from .app import create_app

    loaded()
    app = create_app(
        models,
        max_body_bytes=config.max_body,
        tenants=terms.tenants,
        admission=admission_of(config, terms.store, terms.tenants),
        state=terms.state,
    )
    await app.state.resume()
    entrance.app = app
    say("\n".join([*(loaded_lines(served.engine) for served in models), f"ready: {url}/v1"]))


def loaded_lines(engine: AsyncEngine) -> str:
    """What was loaded and computes it, how long each part took, and the worker's notes."""
    info = engine.info
    worker = engine.seconds["ready"] - sum(info.seconds.values())
    parts = {"tokenizer": engine.seconds["tokenizer"], "worker start and imports": worker, **info.seconds}
    times = ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
    notes = "".join(f"note: {note}\n" for note in info.notes)
    return (
        f"{engine.model_name}: {info.architecture} by {computed_by(info.path)}, "
        f"{info.parameters / 1e6:.0f} M parameters, {number_format(info)} on {info.device}, "
        f"context {info.context}, {info.pages} pages of {info.page_size}\n"
        f"{notes}"
        f"loaded in {engine.seconds['ready']:.2f} s ({times})"
    )


def computed_by(path: str) -> str:
    """Ready.path for people."""
    kind, _, level = path.partition(":")
    return COMPUTED_BY.get(kind, kind) + (f" ({level})" if level else "")


def number_format(info: Ready) -> str:
    """Of weights where they have one of their own, and of all else."""
    return f"{info.dtype} with weights {info.weights}" if info.weights not in ("", info.dtype) else info.dtype


def say(text: str) -> None:
    """Tell the person who started the server."""
    print(text, file=sys.stderr, flush=True)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _http_server(entrance: Draining) -> "uvicorn.Server":
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves signals to us: uvicorn would raise them once more, which ends the process before the engine."""

        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    from . import app as app  # the other half of the HTTP side's imports

    options = uvicorn.Config(
        entrance,
        http="h11",  # bounds headers, and answers HTTP/1.0 and h2c upgrades as it should
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.WARNING,  # its own start and stop messages say less than ours
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who a connection comes from decides whether it may name a tenant
        backlog=BACKLOG,
        timeout_graceful_shutdown=LAST_SECONDS,
    )
    return Server(options)


@contextmanager
def _signals_end(server: "uvicorn.Server", draining: Draining) -> Generator[None, None, None]:
    """SIGINT and SIGTERM end the server once what is under way has ended or its time is up; a second one at once."""
    loop = asyncio.get_running_loop()
    drains: list[asyncio.Task[None]] = []  # a task that nobody holds may be collected

    def end(sig: int, frame: FrameType | None) -> None:
        if draining.is_on or drains:
            server.handle_exit(sig, frame)
        else:
            loop.call_soon_threadsafe(lambda: drains.append(asyncio.create_task(drain(sig))))

    async def drain(sig: int) -> None:
        await draining.drain()
        server.handle_exit(sig, None)

    before = {sig: signal.signal(sig, end) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for task in drains:
            task.cancel()
        for sig, handler in before.items():
            signal.signal(sig, handler)


def _end_if_failed(server: "uvicorn.Server", opening: asyncio.Task[None]) -> None:
    if opening.cancelled() or opening.exception() is not None:
        server.should_exit = True
