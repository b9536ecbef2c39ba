"""The book of tenants: terms by name and by key."""

import hmac
from dataclasses import FrozenInstanceError
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.tenants import ANONYMOUS, Tenants, TenantTerms, TierTerms, TrustedProxy, digest_of

ACME = TenantTerms("acme", weight=3)
BETA = TenantTerms("beta", tier=1)


def book(**named: object) -> Tenants:
    keys = {digest_of("key a"): ACME, digest_of("key b"): BETA}
    return Tenants(**{"tenants": (ACME, BETA), "keys": keys, "anonymous": None, **named})  # type: ignore[arg-type]


def test_without_a_file_everybody_is_anonymous_in_one_tier() -> None:
    assert Tenants().anonymous == TenantTerms(ANONYMOUS)
    assert [tier.number for tier in Tenants().tiers] == [0]
    assert Tenants().of("guest") == TenantTerms("guest")


def test_a_name_has_its_terms_and_an_unknown_one_the_defaults_under_its_own_name() -> None:
    defaults = TenantTerms("whatever", weight=2, max_running=4)
    assert book(defaults=defaults).of("acme") is ACME
    assert book(defaults=defaults).of("new") == TenantTerms("new", weight=2, max_running=4)


def test_the_anonymous_tenant_has_its_own_terms_by_name_too() -> None:
    terms = TenantTerms(ANONYMOUS, weight=7)
    assert book(anonymous=terms).of(ANONYMOUS) is terms


def test_a_key_is_found_by_its_digest_and_only_whole() -> None:
    assert book().by_key("key a") is ACME
    assert book().by_key("key b") is BETA
    for wrong in ("", "key", "key a ", "KEY A", digest_of("key a"), "\ud800"):
        assert book().by_key(wrong) is None


@given(st.lists(st.text(min_size=1), unique=True, max_size=40), st.text())
def test_exactly_the_keys_of_a_book_open_it(keys: list[str], asked: str) -> None:
    each = {key: TenantTerms(f"t{number}") for number, key in enumerate(keys)}
    its = Tenants(keys={digest_of(key): terms for key, terms in each.items()})
    assert all(its.by_key(key) is terms for key, terms in each.items())
    assert its.by_key(asked) is each.get(asked)


def test_digests_are_compared_in_constant_time_and_all_candidates_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    asked = digest_of("key a")
    near = [asked[:4] + other * 60 for other in "abc"]
    its = Tenants(keys={near[0]: BETA, asked: ACME, near[1]: BETA, near[2]: BETA})
    assert its.by_key("key a") is ACME
    assert compared == [(digest, asked) for digest in (near[0], asked, near[1], near[2])]


def test_keys_do_not_show_when_a_book_is_printed() -> None:
    assert repr(book()) == "Tenants(2 tenants, 1 tiers, 2 keys)"


def test_a_book_does_not_change() -> None:
    keys = {digest_of("k"): ACME}
    its = Tenants(tenants=[ACME], keys=keys)
    keys.clear()
    assert its.by_key("k") is ACME
    with pytest.raises(FrozenInstanceError):
        its.tenants = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        its.keys["x"] = ACME  # type: ignore[index]


def test_batch_work_goes_to_its_own_tier_if_there_is_one() -> None:
    assert TenantTerms("a", tier=1).as_batch() == TenantTerms("a", tier=1)
    batch = TenantTerms("a", tier=0, batch_tier=2, weight=5).as_batch()
    assert (batch.name, batch.tier, batch.weight) == ("a", 2, 5)
    assert batch.as_batch() == batch


def test_prompt_pages_are_shared_inside_a_group_and_with_nobody_by_name() -> None:
    grouped = [TenantTerms(name, prefix_group="acme") for name in ("a", "b")]
    assert grouped[0].salt == grouped[1].salt
    assert TenantTerms("acme").salt == "acme" != grouped[0].salt
    assert not grouped[0].salt.isprintable(), "a tenant's name is printable, so none equals it"


@pytest.mark.parametrize(
    ("peer", "inside"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("11.0.0.1", False),
        ("::ffff:11.0.0.1", False),
        ("fe80::1%eth0", False),
        ("localhost", False),
        ("", False),
        (None, False),
    ],
)
def test_a_proxy_is_known_by_its_address(peer: str | None, inside: bool) -> None:
    proxy = TrustedProxy((ip_network("10.0.0.0/8"), ip_network("fd00::/8")), "x-tenant")
    assert proxy.includes(peer) is inside


def test_tiers_have_no_targets_and_no_minimum_unless_said() -> None:
    tier = TierTerms(0, "standard")
    assert (tier.ttft_ms, tier.itl_ms, tier.e2e_ms, tier.min_share) == (None, None, None, 0.0)
