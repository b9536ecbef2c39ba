"""`fairstep tenants`: keys made, and a file shown as tables."""

import re
from ipaddress import ip_network

import pytest

from fairstep.admission.limits import Limit
from fairstep.errors import ConfigError
from fairstep.serving.tenants_command import book_text, key_text
from fairstep.tenants import Tenants, TenantTerms, TierTerms, TrustedProxy, digest_of

LIMIT = Limit(what="requests", per="minute", amount=60)


def test_a_new_key_comes_with_its_digest_and_is_never_the_same() -> None:
    keys = set()
    for _ in range(3):
        text = key_text("acme")
        [key] = re.findall(r"^  (fs-\S{43})$", text, re.MULTILINE)
        assert f'keys = ["{digest_of(key)}"]' in text and 'name = "acme"' in text
        keys.add(key)
    assert len(keys) == 3


def test_what_is_no_name_gets_no_key() -> None:
    with pytest.raises(ConfigError, match="NAME must be 1 to 64 letters"):
        key_text('a"\n[[tenants]]')


def test_the_tables_have_a_line_a_tier_and_a_line_a_tenant() -> None:
    acme = TenantTerms("acme", tier=0, batch_tier=1, weight=3, max_running=8, limits=(LIMIT,))
    beta = TenantTerms("beta", weight=1, queue_share=0.25, max_concurrent=20)
    tiers = (TierTerms(0, "premium", ttft_ms=300), TierTerms(1, "standard", min_share=0.1))
    book = Tenants(tiers=tiers, tenants=(acme, beta), keys={digest_of("k"): acme, digest_of("l"): acme.as_batch()})
    lines = [re.split("  +", line) for line in book_text(book).splitlines()]
    assert lines[1] == ["premium", "300 ms", "-", "-", "0%"]
    assert lines[2] == ["standard", "-", "-", "-", "10%"]
    assert lines[5] == ["acme", "1 + 1 batch", "premium", "standard", "3", "60%", "-", "8", "-", str(LIMIT)]
    assert lines[6] == ["beta", "0", "premium", "premium", "1", "20%", "20", "-", "25%", "-"]
    assert lines[7][0] == "anonymous" and lines[7][5] == "20%"


def test_who_is_let_in_is_said() -> None:
    proxy = TrustedProxy((ip_network("10.0.0.0/8"),), "x-tenant")
    text = book_text(Tenants(anonymous=None, proxy=proxy))
    assert "Requests without a key are refused." in text
    assert "Connections from 10.0.0.0/8 may name the tenant in x-tenant." in text
    assert "refused" not in book_text(Tenants())
