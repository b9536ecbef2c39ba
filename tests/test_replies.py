"""Each error's status, code and headers."""

import pytest

from fairstep import errors
from fairstep.serving.replies import failure_of

ROWS = [
    (errors.InvalidRequest("wrong", "top_k"), 400, "invalid_request", False, None),
    (errors.ContextTooLong("too long", "prompt"), 400, "context_length_exceeded", False, None),
    (errors.DeadlineImpossible("too soon", "deadline_ms"), 400, "deadline_impossible", False, "false"),
    (errors.Unauthorized("no key"), 401, "invalid_api_key", False, "false"),
    (errors.UnknownModel("no"), 404, "model_not_found", False, None),
    (errors.Conflict("has ended"), 409, "conflict", False, "false"),
    (errors.KeyInUse("being answered"), 409, "idempotency_key_in_use", True, None),
    (errors.KeyReused("another body"), 422, "idempotency_key_reused", False, "false"),
    (errors.RateLimited("too much", 3.0), 429, "rate_limit_exceeded", True, None),
    (errors.TenantQueueFull("full", 3.0), 429, "tenant_queue_full", True, None),
    (errors.ConcurrencyLimited("too many", 3.0), 429, "concurrency_limit_exceeded", True, None),
    (errors.QuotaExhausted("used up", 10.0**6), 429, "insufficient_quota", False, "false"),
    (errors.ServerOverloaded("full", 3.0), 503, "server_overloaded", True, None),
    (errors.DeadlineUnattainable("too late", 3.0), 503, "deadline_unattainable", True, None),
    (errors.StoreFailed("the disk is full"), 503, "store_failed", True, None),
    (errors.EngineClosed("closed"), 503, "engine_closed", True, None),
    (errors.EngineDead("killed"), 503, "engine_dead", True, None),
    (errors.EngineRecovering("starting", 3.0), 503, "engine_recovering", True, None),
    (errors.WorkerLost("killed"), 503, "worker_lost", True, None),
    (errors.RequestIsolated("killed it"), 500, "request_failed_isolated", False, "false"),
    (errors.RequestQuarantined("killed it before", 3.0), 422, "request_quarantined", True, "false"),
    (errors.DeadlineExceeded("late"), 504, "deadline_exceeded", True, "false"),
    (errors.FairstepError("odd"), 500, "fairstep_error", False, None),
    (RuntimeError("secret"), 500, "internal_error", False, None),
]


@pytest.mark.parametrize(("error", "status", "code", "hint", "retry"), ROWS, ids=lambda value: str(value)[:24])
def test_an_error_has_its_status_code_and_headers(
    error: Exception, status: int, code: str, hint: bool, retry: str | None
) -> None:
    failure = failure_of(error)
    assert (failure.status, failure.code, failure.headers.get("x-should-retry")) == (status, code, retry)
    assert ("Retry-After" in failure.headers, "Retry-After-Ms" in failure.headers) == (hint, hint)
    body = failure.body()["error"]
    assert body["message"] and body["type"] and body["code"] == code and "secret" not in body["message"]


@pytest.mark.parametrize("seconds", [None, 0.0, 0.4, 1.0, 7.3, 60.0, 119.0, 10.0**6])
def test_when_to_come_back_is_spread_whole_and_under_two_minutes(seconds: float | None) -> None:
    told = set()
    for _ in range(50):
        headers = failure_of(errors.ServerOverloaded("full", seconds)).headers
        whole, exact = int(headers["Retry-After"]), int(headers["Retry-After-Ms"])
        assert 1 <= whole < 120 and 0 <= whole * 1000 - exact < 1000
        assert exact >= 800 * min(seconds or 0, 119)
        told.add(exact)
    assert len(told) > 1 or not 2 <= (seconds or 0) < 150
