"""Requests that brought a step or a worker down alone, refused for ten minutes when they come again. Pure.

A request is known by its tenant and a digest of what it asks: another tenant's, or another prompt, is let in.
"""

from hashlib import blake2b

from .request import Request

SECONDS = 600.0
MOST = 1000  # that are remembered; the oldest goes first

Fingerprint = tuple[str, bytes]


def fingerprint_of(request: Request) -> Fingerprint:
    """Whose it is, and a digest of prompt and params."""
    asked = repr((request.prompt_ids, request.params)).encode()
    return request.tenant, blake2b(asked, digest_size=16).digest()


class Quarantine:
    """Owner of the fingerprints that are refused, each until an instant."""

    def __init__(self) -> None:
        self._until: dict[Fingerprint, float] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._until)

    def put(self, request: Request, now: float) -> None:
        """Refuse its like from now on, for SECONDS."""
        fingerprint = fingerprint_of(request)
        self._until.pop(fingerprint, None)
        self._until[fingerprint] = now + SECONDS
        if len(self._until) > MOST:
            del self._until[next(iter(self._until))]

    def left(self, request: Request, now: float) -> float:
        """For how many seconds more it is refused; 0: it may come in."""
        self._forget(now)
        return self._until.get(fingerprint_of(request), now) - now if self._until else 0.0

    def _forget(self, now: float) -> None:
        """Let go of those whose time is up: they stand first."""
        while self._until and self._until[first := next(iter(self._until))] <= now:
            del self._until[first]
