"""Before anything of a request is read: which tenant it is, and a 401 if it is none. ASGI middleware.

On the way back, replies to what is limited say what the tenant has left of its limits.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..admission.rate_limits import RateFigure
from ..errors import Unauthorized
from ..tenants import TenantTerms
from .auth import tenant_of
from .replies import failure_of
from .tenant_book import TenantBook

if TYPE_CHECKING:
    from ..reception import Reception

OPEN = ("/health", "/ping", "/version", "/metrics")  # for probes, which have no keys
LIMITED = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
TERMS = "fairstep_terms"  # in the scope's state


class TenantCheck:
    """Puts a request's terms into its scope; see terms_of()."""

    def __init__(self, app: ASGIApp, book: TenantBook, reception: "Reception") -> None:
        self._app = app
        self._book = book
        self._reception = reception

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route_path(scope) if scope["type"] == "http" else OPEN[0]
        if path in OPEN:
            await self._app(scope, receive, send)
            return
        peer = scope["client"][0] if scope.get("client") else None
        try:
            terms = tenant_of(scope["headers"], self._book.current, peer=peer)
        except Unauthorized as error:
            self._reception.refused(None, error, None)
            await failure_of(error).reply()(scope, receive, send)
            return
        scope["state"] = {**scope.get("state", {}), TERMS: terms}

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *limit_headers(self._reception.figures(terms, path))]
            await send(message)

        await self._app(scope, receive, send_with_limits if path in LIMITED else send)


def terms_of(scope: Scope) -> TenantTerms:
    """The terms of a request that has passed."""
    return cast(TenantTerms, scope["state"][TERMS])


def route_path(scope: Scope) -> str:
    """The path below where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def limit_headers(figures: Iterable[RateFigure]) -> Sequence[tuple[bytes, bytes]]:
    """x-ratelimit-limit-requests and its kin, as OpenAI names and writes them."""
    headers = []
    for figure in figures:
        what = figure.what.replace("_", "-")
        told = {"limit": figure.limit, "remaining": figure.remaining, "reset": duration(figure.reset)}
        headers += [(f"x-ratelimit-{name}-{what}".encode(), str(value).encode()) for name, value in told.items()]
    return headers


def duration(seconds: float) -> str:
    """12ms, 3.5s or 1m2s."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:g}s"
    return f"{milliseconds // 60_000}m{milliseconds % 60_000 // 1000}s"
