"""What a client gets when something fails: a status, the protocol's error object, and when to try again.

Every error of errors.py has its row here; anything else is our own bug, and its text is for the log only.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..admission.retry import jittered
from ..errors import (
    Conflict,
    DeadlineExceeded,
    EngineClosed,
    EngineDead,
    EngineRecovering,
    FairstepError,
    InvalidRequest,
    KeyReused,
    Overloaded,
    RequestQuarantined,
    StoreFailed,
    TenantLimited,
    Unauthorized,
    UnknownModel,
    WorkerLost,
)

MAX_MESSAGE = 2000  # characters: an error must not send the client's own input back in full
BAD_REQUEST, UNAVAILABLE, SERVER_ERROR = "invalid_request_error", "unavailable_error", "server_error"
LIMITED, TIMED_OUT = "rate_limit_error", "timeout_error"
HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "body_too_slow",
    413: "body_too_large",
    415: "unsupported_media_type",
}


class JsonReply(Response):
    """Plain values as JSON in UTF-8."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the protocol tells it."""

    status: int
    message: str
    type: str
    param: str | None
    code: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The error object."""
        error = {"message": _clean(self.message), "type": self.type, "param": self.param, "code": self.code}
        error["param"] = None if self.param is None else _clean(self.param)
        return {"error": error}

    def reply(self) -> JsonReply:
        return JsonReply(self.body(), self.status, headers=dict(self.headers))


def failure_of(error: Exception) -> Failure:
    """How to tell a client of `error`."""
    match error:
        case InvalidRequest():
            return Failure(400, str(error), BAD_REQUEST, error.param, error.code, _again(error))
        case Unauthorized():
            asked = {"WWW-Authenticate": "Bearer", **_again(error)}
            return Failure(401, str(error), BAD_REQUEST, None, error.code, asked)
        case UnknownModel():
            return Failure(404, str(error), BAD_REQUEST, "model", error.code)
        case Conflict():
            return Failure(409, str(error), BAD_REQUEST, None, error.code, _again(error, hint=True))
        case RequestQuarantined():
            return Failure(422, str(error), BAD_REQUEST, None, error.code, {**_again(error), **_hint(error)})
        case KeyReused():
            return Failure(422, str(error), BAD_REQUEST, None, error.code, _again(error))
        case TenantLimited():
            return Failure(429, str(error), LIMITED, None, error.code, _again(error, hint=True))
        case Overloaded() | StoreFailed() | EngineClosed() | EngineDead() | EngineRecovering() | WorkerLost():
            return Failure(503, str(error), UNAVAILABLE, None, error.code, _again(error, hint=True))
        case DeadlineExceeded():
            return Failure(504, str(error), TIMED_OUT, None, error.code, {**_again(error), **_hint(error)})
        case FairstepError():
            return Failure(500, str(error), SERVER_ERROR, None, error.code, _again(error))
        case HTTPException(status_code=status, detail=detail):
            kind = BAD_REQUEST if status < 500 else SERVER_ERROR
            return Failure(status, detail, kind, None, HTTP_CODES.get(status, "http_error"), error.headers or {})
        case _:
            return Failure(500, "the server failed; its log says more", SERVER_ERROR, None, "internal_error")


def _again(error: FairstepError, *, hint: bool = False) -> dict[str, str]:
    """Headers about trying again; hint: and when."""
    if error.should_retry is False:
        return {"x-should-retry": "false"}
    return _hint(error) if hint else {}


def _hint(error: FairstepError) -> dict[str, str]:
    seconds = jittered(error.retry_after, random.uniform)
    return {"Retry-After": str(math.ceil(seconds)), "Retry-After-Ms": str(math.ceil(seconds * 1000))}


def _clean(text: str) -> str:
    short = text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3] + "..."
    return short.encode("utf-8", "replace").decode("utf-8")
