"""Servers under measurement: at an address, or started for the run by a command. Knows processes, and no engine.

Who waits for its turn is stopped (SIGSTOP), so that an idle server's loops take nothing from the one that is measured.
"""

import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from fairstep.tenants import digest_of
from process_tree import tree

POLL_SECONDS = 0.05
LIMIT_SECONDS = 600.0
END_SECONDS = 30.0
TOLD = (("/version", "version"), ("/props", "build_info"))  # where servers tell their versions


class PeerProcess:
    """A server in a process of its own. {port} in the command becomes a free port; what it says goes to a file."""

    def __init__(self, name: str, words: Sequence[str], folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._name, self._log = name, folder / f"{name}.log"
        self._http = httpx.Client(base_url=self.url, timeout=5)
        self._started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [word.replace("{port}", str(port)) for word in words], stdout=log, stderr=subprocess.STDOUT
            )
        self.pid = self._process.pid

    def wait_ready(self) -> float:
        """Seconds from the command to the first 200 of /health, or of the list of models where there is no /health."""
        while time.monotonic() - self._started < LIMIT_SECONDS:
            if self._process.poll() is not None:
                break
            if (status := self._status("/health")) == 200 or (status == 404 and self._status("/v1/models") == 200):
                return time.monotonic() - self._started
            time.sleep(POLL_SECONDS)
        raise SystemExit(f"{self._name} did not start:\n{self._log.read_text(errors='replace')[-3000:]}")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        self._http.close()
        self.resume()
        children = [*tree(self.pid)][1:]
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in children:  # those it left behind
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _status(self, path: str) -> int | None:
        try:
            return self._http.get(path).status_code
        except httpx.HTTPError:
            return None

    def _signal(self, which: signal.Signals) -> None:
        for pid in tree(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, which)


@dataclass(frozen=True, slots=True)
class Peer:
    """A server as it is measured. model: None: the first that it lists. keys: two tenants' API keys, "" for none.

    started: seconds from its command to its first answer; None, as process: it was running before.
    """

    name: str
    url: str
    version: str
    model: str | None = None
    keys: tuple[str, str] = ("", "")
    process: PeerProcess | None = None
    started: float | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The time in which it may run."""
        if self.process:
            self.process.resume()
        yield
        if self.process:
            self.process.pause()


class Peers:
    """All that are measured, in the order in which they were named. They end with the block.

    folder: for logs and the file of tenants. models: what a server is asked for, where not the first that it lists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.models: dict[str, str] = {}
        self._members: list[Peer] = []
        self._keys = secrets.token_urlsafe(), secrets.token_urlsafe()

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, *error: object) -> None:
        for peer in self._members:
            if peer.process:
                peer.process.stop()

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._members)

    def find(self, named: str) -> None:
        """One that runs: NAME=URL, and a model, and two tenants' keys, after commas."""
        name, where = parted(named)
        url, model, a, b = (*where.split(","), "", "", "", "")[:4]
        self._members.append(Peer(name, url.rstrip("/"), version_told(url), model or None, (a, b)))

    def start(self, named: str) -> None:
        """Another's: NAME=COMMAND."""
        name, command = parted(named)
        self._begin(name, shlex.split(command), ("", ""))

    def start_own(self, named: str, model: str) -> None:
        """Ours: NAME=OPTIONS of `fairstep serve`; it knows two tenants."""
        name, options = parted(named)
        command = [str(Path(sys.executable).with_name("fairstep")), "serve", model, "--port", "{port}"]
        self._begin(name, [*command, "--tenants", str(self._tenants()), *shlex.split(options)], self._keys)

    def _begin(self, name: str, words: Sequence[str], keys: tuple[str, str]) -> None:
        """Start it, alone on the machine, and let it wait for its turn."""
        process = PeerProcess(name, words, self._folder)
        try:
            seconds = process.wait_ready()
            version = version_told(process.url)
        except BaseException:
            process.stop()
            raise
        process.pause()
        self._members.append(Peer(name, process.url, version, self.models.get(name), keys, process, round(seconds, 2)))

    def _tenants(self) -> Path:
        path = self._folder / "tenants.toml"
        named = zip("AB", self._keys, strict=True)
        tables = [f'[[tenants]]\nname = "{name}"\nkeys = ["{digest_of(key)}"]\n' for name, key in named]
        path.write_text("\n".join(tables), encoding="utf-8")
        return path


def parted(named: str) -> tuple[str, str]:
    name, equals, rest = named.partition("=")
    if not equals or not name:
        raise SystemExit(f"{named!r} names no server: it begins with NAME=")
    return name, rest


def version_told(url: str) -> str:
    """As the server tells it, "" if it doesn't."""
    for path, field in TOLD:
        with suppress(httpx.HTTPError, ValueError):
            response = httpx.get(url + path, timeout=5)
            if response.status_code == 200:
                return str(response.json().get(field, ""))
    return ""
