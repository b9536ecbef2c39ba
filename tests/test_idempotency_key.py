"""idempotency_key.py: what a key stands for."""

import pytest
from starlette.datastructures import Headers

from fairstep.errors import InvalidRequest
from fairstep.serving.idempotency_key import claim_of, key_in, prefers_wait


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.lower().encode(), value.encode("latin-1")) for name, value in pairs])


@pytest.mark.parametrize("key", ["a", "x" * 255, '"8e03978e-40d5-43dd-bc93-6894a57f9324"', "a b"])
def test_a_key_is_taken_as_it_is(key: str) -> None:
    assert key_in(headers(("Idempotency-Key", key))) == key


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "\xe9", " a"])
def test_a_key_that_is_none_is_refused_by_name(key: str) -> None:
    with pytest.raises(InvalidRequest, match="Idempotency-Key"):
        key_in(headers(("Idempotency-Key", key)))


def test_no_key_is_none_and_two_are_refused() -> None:
    assert key_in(headers()) is None
    with pytest.raises(InvalidRequest):
        key_in(headers(("Idempotency-Key", "a"), ("Idempotency-Key", "a")))


@pytest.mark.parametrize(
    ("value", "waits"), [("wait", True), ("respond-async, wait=10", True), ("Wait; x=1", True), ("waiting", False)]
)
def test_prefer_wait(value: str, waits: bool) -> None:
    assert prefers_wait(headers(("Prefer", value))) is waits
    assert not prefers_wait(headers())


def test_order_and_nulls_mean_nothing_and_all_else_does() -> None:
    body = {"prompt": "é", "max_tokens": 3, "logit_bias": {"1": 2, "3": 4}}
    claim = claim_of("k", "t", "/v1/completions", body, "r")
    same = {"stop": None, "logit_bias": {"3": 4, "1": 2}, "max_tokens": 3, "prompt": "é"}
    assert claim_of("k", "t", "/v1/completions", same, "r") == claim
    for other in ({**body, "max_tokens": 4}, {**body, "stream": True}, {"prompt": "é"}):
        changed = claim_of("k", "t", "/v1/completions", other, "r")
        assert changed.scope == claim.scope and changed.fingerprint != claim.fingerprint
    assert claim_of("k", "t", "/v1/completions", body, "r2").fingerprint != claim.fingerprint


def test_tenants_and_routes_have_keys_of_their_own() -> None:
    scopes = {
        claim_of(*three, {}, "r").scope
        for three in (("k", "t", "/a"), ("k", "u", "/a"), ("k", "t", "/b"), ("t", "k", "/a"))
    }
    assert len(scopes) == 4
