"""The shape of a tenants file, and how its mistakes are told."""

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.serving.tenants_file import book_of
from fairstep.serving.tenants_schema import (
    KeyEntry,
    LimitEntry,
    ProxyEntry,
    TenantEntry,
    TenantsEntry,
    TierEntry,
    checked,
)

DIGEST = "ab" * 32
ENTRIES = (TenantsEntry, TenantEntry, TierEntry, LimitEntry, ProxyEntry, KeyEntry)
KEYS = sorted({each.alias or name for entry in ENTRIES for name, each in entry.model_fields.items()})
WORDS = st.sampled_from(
    ["a", "b", "tokens", "minute", "unlimited", "10.0.0.0/8", "x-t", "batch", DIGEST, "", "\n", "团"]
)
VALUES = st.recursive(
    WORDS | st.integers() | st.floats() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


def tenant(line: str) -> str:
    return f'[[tenants]]\nname = "acme"\n{line}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (tenant("weight = 0"), "tenants[0].weight must be greater than or equal to 1, not 0 (tenant acme)"),
        (tenant("weight = 1001"), "tenants[0].weight must be less than or equal to 1000, not 1001 (tenant acme)"),
        (tenant("weight = 1.5"), "tenants[0].weight must be a valid integer, not 1.5 (tenant acme)"),
        (tenant("weight = true"), "tenants[0].weight must be a valid integer, not true (tenant acme)"),
        (tenant('weight = "3"'), "tenants[0].weight must be a valid integer, not '3' (tenant acme)"),
        (tenant("wieght = 3"), "tenants[0] has no key 'wieght': did you mean weight? (tenant acme)"),
        (tenant("queue_share = 0"), "tenants[0].queue_share must be greater than 0, not 0 (tenant acme)"),
        (tenant("max_running = 0"), "tenants[0].max_running must be greater than or equal to 1, not 0 (tenant acme)"),
        (tenant("keys = [3]"), "tenants[0].keys[0] must be a table: {...} (tenant acme)"),
        (tenant("limits = 3"), "tenants[0].limits must be a list: [...] (tenant acme)"),
        (
            tenant('limits = [{ what = "tokens", per = "hour", amount = 1 }]'),
            "tenants[0].limits[0].per must be 'minute' or 'month', not 'hour' (tenant acme)",
        ),
        (
            tenant('limits = [{ what = "tokens", per = "month" }]'),
            "tenants[0].limits[0].amount is missing (tenant acme)",
        ),
        (
            tenant('limits = [{ what = "tokens", per = "month", amount = "none" }]'),
            "tenants[0].limits[0].amount must be a valid integer, not 'none' (tenant acme)",
        ),
        (
            tenant(f'keys = [{{ sha256 = "{DIGEST}", class = "slow" }}]'),
            "tenants[0].keys[0].class must be 'interactive' or 'batch', not 'slow' (tenant acme)",
        ),
        ("[[tenants]]\nkeys = []", "tenants[0].name is missing"),
        (
            '[[tenants]]\nname = "a b"',
            "tenants[0].name must be 1 to 64 letters, digits and . _ @ : / + -, and begin with a letter or a digit",
        ),
        ('[tenants]\nname = "a"', "tenants must be tables of their own: write [[tenants]]"),
        ("tenant = 1", "has no key 'tenant': did you mean tenants?"),
        ("tenants = [3]", "tenants[0] must be a table: {...}"),
        ('[[tiers]]\nname = "t"\nttft_ms = inf', "tiers[0].ttft_ms must be a finite number, not inf (tier t)"),
        ('[[tiers]]\nname = "t"\nmin_share = 1', "tiers[0].min_share must be less than 1, not 1 (tier t)"),
        ("defaults = 3", "defaults must be a table: {...}"),
        ('[trusted_proxy]\nnetworks = []\nheader = "x-t"', "trusted_proxy.networks must have at least 1 item"),
        (
            '[trusted_proxy]\nnetworks = ["10.0.0.1/8"]\nheader = "x-t"',
            "trusted_proxy.networks[0] must be a network such as 10.0.0.0/8 or ::1/128, not '10.0.0.1/8'",
        ),
        (
            '[trusted_proxy]\nnetworks = ["::1"]\nheader = "Authorization"',
            "trusted_proxy.header must be a header's name such as X-Tenant, and none that holds a key",
        ),
        (
            tenant("weight = 0\nmax_running = 0\nqueue_share = 2"),
            "tenants[0].weight must be greater than or equal to 1, not 0 (tenant acme); and 2 more mistakes",
        ),
    ],
)
def test_a_mistake_is_told_by_its_place_in_words(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        checked(tomllib.loads(text))
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "line",
    ["keys = [{ sha256 = 53124 }]", 'keys = ["fs-s3cret"]', 'keys = [{ sha256 = "fs-s3cret" }]', 'keys = "fs-s3cret"'],
)
def test_a_key_written_by_mistake_is_not_repeated(line: str) -> None:
    with pytest.raises(ValueError) as caught:
        checked(tomllib.loads(tenant(line)))
    assert not re.search("s3cret|53124", str(caught.value))


def test_a_key_is_a_digest_alone_or_with_its_class() -> None:
    [entry] = checked(
        tomllib.loads(tenant(f'keys = ["{DIGEST.upper()}", {{ sha256 = "{DIGEST}", class = "batch" }}]'))
    ).tenants
    assert [(key.sha256, key.work) for key in entry.keys] == [(DIGEST, "interactive"), (DIGEST, "batch")]


@pytest.mark.parametrize("name", ["a", "acme-1", "team/eu", "u@example.org", "9", "团队", "a" * 64])
def test_names_are_what_a_label_and_a_header_can_carry(name: str) -> None:
    [entry] = checked({"tenants": [{"name": name}]}).tenants
    assert entry.name == name


def test_an_empty_file_has_the_form() -> None:
    entry = checked({})
    assert (entry.tenants, entry.tiers, entry.limits, entry.anonymous, entry.trusted_proxy) == ([], [], [], None, None)


@given(st.dictionaries(st.sampled_from([*TenantsEntry.model_fields, "\n"]), VALUES))
def test_whatever_a_file_holds_gives_a_book_or_one_line(values: dict[str, Any]) -> None:
    try:
        book_of(checked(values))
    except ValueError as mistake:
        assert str(mistake) and "\n" not in str(mistake)
