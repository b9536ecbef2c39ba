"""Which tenant a request is: from its key, or from what a trusted proxy says. Knows ASGI's headers and no framework.

A client's own word for its tenant counts for nothing.
"""

from collections.abc import Iterable, Sequence

from ..errors import Unauthorized
from ..tenants import Tenants, TenantTerms, TrustedProxy
from .tenants_schema import TENANT_NAME

HOW = "send it as 'Authorization: Bearer KEY', or in x-api-key or api-key"

Headers = Iterable[tuple[bytes, bytes]]  # as in an ASGI scope: names in lower case


def tenant_of(headers: Headers, book: Tenants, *, peer: str | None = None) -> TenantTerms:
    """The terms that a request has; `peer` is the address at the other end of its connection. Raises Unauthorized."""
    fields = [(name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in headers]
    if book.proxy is not None and book.proxy.includes(peer):
        name = _name_told(fields, book.proxy)
        if name is not None:
            return book.of(name)
    if not book.keys and book.anonymous is not None:
        return book.anonymous  # no key could be right: clients that must send some send anything
    key = _key_in(fields)
    if key is None:
        if book.anonymous is None:
            raise Unauthorized(f"an API key is needed: {HOW}")
        return book.anonymous
    terms = book.by_key(key)
    if terms is None:
        raise Unauthorized("this API key is not known here")
    return terms


def _name_told(fields: Sequence[tuple[str, str]], proxy: TrustedProxy) -> str | None:
    """The tenant that a proxy names; two of them mean that it passes a client's own header on."""
    told = [value.strip() for name, value in fields if name == proxy.header]
    if not told:
        return None
    if len(told) > 1 or not TENANT_NAME.fullmatch(told[0]):
        raise Unauthorized(f"the header {proxy.header} must come once, with one tenant's name")
    return told[0]


def _key_in(fields: Sequence[tuple[str, str]]) -> str | None:
    """The one key that a request brings, wherever it stands."""
    keys = set()
    for name, value in fields:
        if name == "authorization":
            scheme, _, key = value.partition(" ")
            if scheme.lower() == "bearer":  # another scheme is another server's business, in front of this one
                keys.add(key.strip())
        elif name in ("x-api-key", "api-key"):
            keys.add(value.strip())
    keys.discard("")
    if len(keys) > 1:
        raise Unauthorized("the request brings different API keys: send one")
    return keys.pop() if keys else None
