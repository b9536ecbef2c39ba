"""Which tenant a request is."""

from ipaddress import ip_network

import pytest

from fairstep.errors import Unauthorized
from fairstep.serving.auth import tenant_of
from fairstep.serving.replies import failure_of
from fairstep.tenants import Tenants, TenantTerms, TrustedProxy, digest_of

ACME, BETA, GUEST = TenantTerms("acme"), TenantTerms("beta"), TenantTerms("anonymous", weight=2)
KEYS = {digest_of("key-a"): ACME, digest_of("key-b"): BETA, digest_of("schlüssel"): BETA}
PROXY = TrustedProxy((ip_network("10.0.0.0/8"),), "x-tenant")
CLOSED = Tenants(tenants=(ACME, BETA), keys=KEYS, anonymous=None)
OPEN = Tenants(tenants=(ACME, BETA), keys=KEYS, anonymous=GUEST)
BEHIND = Tenants(tenants=(ACME, BETA), keys=KEYS, anonymous=None, proxy=PROXY)


def headers(*pairs: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in (("host", "h"), *pairs)]


@pytest.mark.parametrize(
    "pairs",
    [
        [("authorization", "Bearer key-a")],
        [("authorization", "bearer  key-a ")],
        [("x-api-key", "key-a")],
        [("api-key", "key-a")],
        [("authorization", "Bearer key-a"), ("x-api-key", "key-a")],
        [("authorization", "Basic dTpw"), ("x-api-key", "key-a")],
        [("authorization", "Bearer"), ("api-key", "key-a")],
    ],
)
def test_a_key_names_its_tenant_wherever_it_stands(pairs: list[tuple[str, str]]) -> None:
    assert tenant_of(headers(*pairs), CLOSED) is ACME


def test_a_key_may_be_any_text() -> None:
    assert tenant_of(headers(("authorization", "Bearer schlüssel")), CLOSED) is BETA
    with pytest.raises(Unauthorized):
        tenant_of([(b"x-api-key", b"schl\xfcssel")], CLOSED)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "an API key is needed: send it as 'Authorization: Bearer KEY'"),
        ([("authorization", "Bearer")], "an API key is needed"),
        ([("authorization", "Basic key-a")], "an API key is needed"),
        ([("authorization", "key-a")], "an API key is needed"),
        ([("authorization", "Bearer key-c")], "this API key is not known here"),
        ([("authorization", "Bearer key-a"), ("x-api-key", "key-b")], "different API keys"),
        ([("authorization", "Bearer key-a"), ("authorization", "Bearer key-b")], "different API keys"),
        ([("x-tenant", "acme")], "an API key is needed"),
    ],
)
def test_whoever_brings_no_known_key_is_refused(pairs: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(Unauthorized, match=said):
        tenant_of(headers(*pairs), CLOSED)


def test_a_refusal_never_repeats_the_key() -> None:
    with pytest.raises(Unauthorized) as caught:
        tenant_of(headers(("authorization", "Bearer s3cret"), ("x-api-key", "s3cret2")), CLOSED)
    assert "s3cret" not in str(caught.value)


def test_where_anonymous_requests_are_served_a_wrong_key_is_still_wrong() -> None:
    assert tenant_of(headers(), OPEN) is GUEST
    assert tenant_of(headers(("authorization", "Bearer key-b")), OPEN) is BETA
    with pytest.raises(Unauthorized):
        tenant_of(headers(("authorization", "Bearer key-c")), OPEN)


def test_without_keys_in_the_book_any_key_is_as_good_as_none() -> None:
    assert tenant_of(headers(("authorization", "Bearer EMPTY")), Tenants()).name == "anonymous"
    assert tenant_of(headers(("x-api-key", "a"), ("api-key", "b")), Tenants()).name == "anonymous"


def test_a_trusted_proxy_names_the_tenant() -> None:
    assert tenant_of(headers(("x-tenant", "acme")), BEHIND, peer="10.0.0.9") is ACME
    assert tenant_of(headers(("x-tenant", "new")), BEHIND, peer="10.0.0.9") == TenantTerms("new")
    with_key = headers(("x-tenant", "beta"), ("authorization", "Bearer key-a"))
    assert tenant_of(with_key, BEHIND, peer="10.0.0.9") is BETA


@pytest.mark.parametrize("peer", ["11.0.0.1", "127.0.0.1", None])
def test_nobody_else_does(peer: str | None) -> None:
    with_key = headers(("x-tenant", "beta"), ("authorization", "Bearer key-a"))
    assert tenant_of(with_key, BEHIND, peer=peer) is ACME
    with pytest.raises(Unauthorized):
        tenant_of(headers(("x-tenant", "beta")), BEHIND, peer=peer)


def test_what_other_headers_say_of_the_address_counts_for_nothing() -> None:
    told = headers(("x-forwarded-for", "10.0.0.9"), ("forwarded", "for=10.0.0.9"), ("x-tenant", "acme"))
    with pytest.raises(Unauthorized):
        tenant_of(told, BEHIND, peer="11.0.0.1")


def test_a_proxy_that_names_nobody_is_a_client_with_a_key() -> None:
    assert tenant_of(headers(("x-api-key", "key-a")), BEHIND, peer="10.0.0.9") is ACME
    with pytest.raises(Unauthorized, match="an API key is needed"):
        tenant_of(headers(), BEHIND, peer="10.0.0.9")


@pytest.mark.parametrize("values", [["acme", "beta"], ["acme", "acme"], [""], ["a, b"], ["a" * 65], ["a\udcff"]])
def test_a_proxy_that_passes_a_clients_header_on_is_found_out(values: list[str]) -> None:
    told = [(b"x-tenant", value.encode("utf-8", "surrogateescape")) for value in values]
    with pytest.raises(Unauthorized, match="x-tenant must come once"):
        tenant_of(told, BEHIND, peer="10.0.0.9")


def test_a_client_is_told_in_the_protocols_form() -> None:
    failure = failure_of(Unauthorized("this API key is not known here"))
    assert (failure.status, failure.code) == (401, "invalid_api_key")
    assert failure.headers == {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}
    assert failure.body()["error"]["type"] == "invalid_request_error"
