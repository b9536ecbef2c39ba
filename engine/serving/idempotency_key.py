"""What an Idempotency-Key stands for: whose it is and where, and a fingerprint of what was asked.

https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers

from ..errors import InvalidRequest

HEADER = "Idempotency-Key"
MOST_CHARACTERS = 255
_KEY = re.compile(rf"[!-~](?:[ -~]{{0,{MOST_CHARACTERS - 2}}}[!-~])?")
_WAIT = re.compile(r"\s*wait\s*(?:=|$)", re.IGNORECASE)  # RFC 7240


@dataclass(frozen=True, slots=True)
class Claim:
    """One use of a key. scope: a digest of tenant, route and key, so that no store holds a key itself."""

    scope: bytes
    fingerprint: bytes
    tenant: str


def key_in(headers: Headers) -> str | None:
    """The key that a request brings. Raises InvalidRequest."""
    keys = headers.getlist(HEADER)
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise InvalidRequest(f"{HEADER} must come once, with 1 to {MOST_CHARACTERS} printable ASCII characters", HEADER)
    return keys[0]


def prefers_wait(headers: Headers) -> bool:
    """Whether the client would rather wait than be told that there is no answer yet."""
    return any(_WAIT.match(each) for line in headers.getlist("prefer") for each in re.split("[,;]", line))


def claim_of(key: str, tenant: str, route: str, body: Mapping[str, Any], revision: str) -> Claim:
    """What the key stands for. revision: of the model, under which the same body may have another answer."""
    return Claim(_digest([tenant, route, key]), _digest([revision, _canonical(body)]), tenant)


def _canonical(body: Mapping[str, Any]) -> dict[str, Any]:
    """null means left out, and the order of keys means nothing."""
    return {name: value for name, value in body.items() if value is not None}


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")).digest()
