"""A whole server on a loopback port: AsyncEngine, the app and uvicorn on an event loop in a thread of the test."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn

from fairstep import AsyncEngine, EngineConfig
from fairstep.serving.app import create_app

T = TypeVar("T")


class LiveServer:
    """`with LiveServer(model) as server`: requests go to server.url; server.call runs something on its loop.

    app: what create_app() gets; the rest is AsyncEngine's.
    """

    def __init__(
        self, model: str, config: EngineConfig | None = None, *, app: Mapping[str, Any] | None = None, **how: Any
    ) -> None:
        self._app = app or {}
        self.engine = AsyncEngine(model, config, **how)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="live-server")

    def call(self, body: Callable[[], T]) -> T:
        """Run a plain function on the server's loop and return what it returns."""

        async def run() -> T:
            return body()

        return self.wait_for(run())

    def wait_for(self, body: Coroutine[Any, Any, T], seconds: float = 120) -> T:
        """Run a coroutine on the server's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(body, self._loop).result(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
            self._socket.close()

    async def _serve(self) -> None:
        async with self.engine:
            self._loop = asyncio.get_running_loop()
            app = create_app(self.engine, **self._app)
            await app.state.resume()
            self._server = uvicorn.Server(
                uvicorn.Config(app, http="h11", log_level="warning", access_log=False, timeout_graceful_shutdown=5)
            )
            serving = asyncio.create_task(self._server.serve([self._socket]))
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            self._started.set()
            await serving
