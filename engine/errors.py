"""Every error fairstep raises on purpose, as one tree. It knows no HTTP: serving/ maps each to a status.

FairstepError
├── InvalidRequest      the caller's input is wrong: `param` names the field           (400)
│   ├── InvalidParameter    a sampling parameter is out of range; also a ValueError
│   ├── ContextTooLong      prompt, or prompt plus max_tokens, can never fit           (400)
│   ├── TemplateError       the chat template refused the messages                     (400)
│   └── DeadlineImpossible  not even an idle server could meet the deadline            (400)
├── Conflict            what is asked does not go with what is there                   (409)
│   └── KeyInUse            what its idempotency key stands for is not answered yet
├── KeyReused           its idempotency key stands for another request                 (422)
├── Unauthorized        no key, or one that is not known                               (401)
├── UnknownModel        no such model is served                                        (404)
├── TenantLimited       the tenant's own limits refuse it                              (429)
│   ├── RateLimited         too much within a minute
│   ├── QuotaExhausted      too much within the month
│   ├── TenantQueueFull     too much of the tenant's waits already
│   └── ConcurrencyLimited  too many of the tenant's requests are in the server
├── Overloaded          refused now, may work later                                    (503)
│   ├── ServerOverloaded    no place in the queue, or put out of it for others
│   └── DeadlineUnattainable    too much waits before it to meet its deadline
├── DeadlineExceeded    its time was up before it was answered                         (504)
├── StoreFailed         a count could not be kept                                      (503)
├── EngineClosed        not started, or closed                                           (503)
├── EngineDead          the worker ended; the message says how                         (503)
├── EngineRecovering    no worker is ready: one is being started                       (503)
├── WorkerLost          the worker ended, and the request was not tried again          (503)
├── RequestIsolated     what computed this request alone failed                        (500)
├── RequestQuarantined  the same request failed so a short while ago                   (422)
├── ModelError          a model cannot be loaded: what is wrong and where              (exit 1)
└── ConfigError         a setting is wrong: names the key, the value and what to do    (exit 2)
"""


class FairstepError(Exception):
    """Root of the tree; `code` is stable and machine-readable.

    retry_after: seconds after which the same may be accepted, before any jitter; None: not known, or never.
    should_retry: False where trying again is pointless, None where the status says it all.
    """

    code: str = "fairstep_error"
    should_retry: bool | None = None

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidRequest(FairstepError):
    """The caller's input is wrong. `param` is the field's name, or None."""

    code = "invalid_request"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidParameter(InvalidRequest, ValueError):
    """A sampling parameter is out of range."""

    code = "invalid_value"


class ContextTooLong(InvalidRequest):
    """Prompt, or prompt plus max_tokens, can never fit the context or the KV pool."""

    code = "context_length_exceeded"


class TemplateError(InvalidRequest):
    """The model's chat template refused the messages; the message is the template's own."""

    code = "template_error"


class DeadlineImpossible(InvalidRequest):
    """The deadline leaves less time than the request would take on an idle server, or none at all."""

    code = "deadline_impossible"
    should_retry = False


class Conflict(FairstepError):
    """What is asked does not go with the state that things are in; the message says which."""

    code = "conflict"
    should_retry: bool | None = False


class KeyInUse(Conflict):
    """The request that this idempotency key stands for has not been answered yet."""

    code = "idempotency_key_in_use"
    should_retry: bool | None = True


class KeyReused(FairstepError):
    """The idempotency key stands for another request: another body, or another model revision."""

    code = "idempotency_key_reused"
    should_retry = False


class Unauthorized(FairstepError):
    """The request brings no key that is known here. The message never holds the key."""

    code = "invalid_api_key"
    should_retry = False


class UnknownModel(FairstepError):
    """The model asked for is not served here."""

    code = "model_not_found"


class TenantLimited(FairstepError):
    """Refused by the tenant's own limits, whatever others do."""

    code = "tenant_limited"
    should_retry: bool | None = True


class RateLimited(TenantLimited):
    """A limit a minute is used up; `retry_after` is when it has room for this request."""

    code = "rate_limit_exceeded"


class QuotaExhausted(TenantLimited):
    """A limit a calendar month is used up."""

    code = "insufficient_quota"
    should_retry = False


class TenantQueueFull(TenantLimited):
    """The tenant's share of the queue is full."""

    code = "tenant_queue_full"


class ConcurrencyLimited(TenantLimited):
    """The tenant has as many requests in the server as it may."""

    code = "concurrency_limit_exceeded"


class Overloaded(FairstepError):
    """Refused now; the same request may be accepted later."""

    code = "overloaded"
    should_retry: bool | None = True


class ServerOverloaded(Overloaded):
    """There is no place in the queue, or this request had to leave its place to others."""

    code = "server_overloaded"


class DeadlineUnattainable(Overloaded):
    """What waits before this request leaves too little time; an idle server could meet its deadline."""

    code = "deadline_unattainable"


class DeadlineExceeded(FairstepError):
    """The request's time was up before it was answered."""

    code = "deadline_exceeded"
    should_retry = False


class StoreFailed(FairstepError):
    """A count could not be kept, so what it counts cannot go on; the message says why."""

    code = "store_failed"


class EngineClosed(FairstepError):
    """The engine was closed."""

    code = "engine_closed"


class EngineDead(FairstepError):
    """The worker ended unexpectedly; the message says how."""

    code = "engine_dead"


class EngineRecovering(FairstepError):
    """No worker is ready now, and one is being started; the message says what became of the last."""

    code = "engine_recovering"


class WorkerLost(FairstepError):
    """The worker that computed the request ended, and too many had to be tried again of late."""

    code = "worker_lost"


class RequestIsolated(FairstepError):
    """A step, or a worker, failed with this request and no other: it is not tried again, and refused for a while."""

    code = "request_failed_isolated"
    should_retry = False


class RequestQuarantined(FairstepError):
    """The same request of the same tenant was isolated a short while ago."""

    code = "request_quarantined"
    should_retry = False


class ModelError(FairstepError):
    """A model cannot be loaded: the message says what is wrong and in which file."""

    code = "model_error"


class ConfigError(FairstepError, ValueError):
    """A setting is wrong: the message names the key, the value and what to do."""

    code = "config_error"


def told_as(code: str | None, message: str) -> FairstepError:
    """The error that ended a request, from what its last Delta says."""
    for kind in (WorkerLost, RequestIsolated, EngineDead, EngineClosed):
        if kind.code == code:
            return kind(message)
    return FairstepError(message)
