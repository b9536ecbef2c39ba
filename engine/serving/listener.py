"""The listening socket, taken before a model loads so that a busy port is told at once."""

import errno
import socket

from ..errors import ConfigError

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises ConfigError in words."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as problem:
        raise ConfigError(f"host {host!r} is not an address of this machine: {problem}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise ConfigError(_refusal(host, port, problem)) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a client reaches the socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refusal(host: str, port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another program: choose one with --port"
    if problem.errno == errno.EACCES:
        return f"port {port} may not be opened by this user: choose one from 1024 up with --port"
    return f"cannot listen on {host} port {port}: {problem.strerror}"
