"""What a tenants file means, and the example on its page."""

import re
from pathlib import Path

import pytest

from fairstep.admission.deadlines import LatencyTarget
from fairstep.admission.limits import Limit
from fairstep.errors import ConfigError
from fairstep.serving.tenants_file import read_tenants
from fairstep.tenants import Tenants, TenantTerms, TierTerms, digest_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tenants.md"
KEY = f'keys = ["{digest_of("key")}"]'
TWO_TIERS = '[[tiers]]\nname = "first"\n[[tiers]]\nname = "second"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tenants.toml"


def read(path: Path, text: str) -> Tenants:
    path.write_text(text, encoding="utf-8")
    return read_tenants(path)


def tenant(name: str, *lines: str) -> str:
    return "\n".join(("[[tenants]]", f'name = "{name}"', *lines, ""))


def test_a_tenant_alone_has_the_neutral_terms_of_one_tier(path: Path) -> None:
    book = read(path, tenant("acme", KEY))
    assert book.tenants == (TenantTerms("acme"),)
    assert book.tiers == (TierTerms(0, "standard"),)
    assert book.by_key("key") == TenantTerms("acme")
    assert book.anonymous is None and book.proxy is None


def test_what_a_tenant_says_goes_before_the_defaults(path: Path) -> None:
    defaults = "[defaults]\nweight = 2\nmax_running = 4\nmax_concurrent = 8\nqueue_share = 0.5\n"
    book = read(path, defaults + tenant("a", KEY, "weight = 3", "max_running = 9") + tenant("b"))
    assert book.of("a") == TenantTerms("a", weight=3, max_running=9, max_concurrent=8, queue_share=0.5)
    assert book.of("b") == TenantTerms("b", weight=2, max_running=4, max_concurrent=8, queue_share=0.5)
    assert book.of("unknown") == TenantTerms("unknown", weight=2, max_running=4, max_concurrent=8, queue_share=0.5)


def test_tiers_are_served_in_the_order_of_the_file(path: Path) -> None:
    tiers = '[[tiers]]\nname = "first"\nttft_ms = 300\nitl_ms = 50.5\n[[tiers]]\nname = "second"\nmin_share = 0.1\n'
    book = read(path, tiers + '[defaults]\ntier = "second"\n' + tenant("a", KEY, 'tier = "first"') + tenant("b"))
    assert book.tiers == (TierTerms(0, "first", ttft_ms=300, itl_ms=50.5), TierTerms(1, "second", min_share=0.1))
    assert [book.of(name).tier for name in ("a", "b", "unknown")] == [0, 1, 1]


def test_targets_are_those_of_tiers_endpoints_and_models(path: Path) -> None:
    tiers = '[[tiers]]\nname = "first"\nttft_ms = 300\nitl_ms = 50\n[[tiers]]\nname = "second"\nitl_ms = 9\n'
    own = (
        '[[targets]]\ne2e_ms = 60_000\ntier = "second"\n[[targets]]\nttft_ms = 1500\nendpoint = "/v1/c*"\nmodel = "m"\n'
    )
    book = read(path, tiers + own + '[defaults]\ntier = "first"\n' + tenant("a", KEY))
    assert book.targets == (
        LatencyTarget(first=0.3, tier=0),
        LatencyTarget(whole=60.0, tier=1),
        LatencyTarget(first=1.5, endpoint="/v1/c*", model="m"),
    )
    assert Tenants().targets == ()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ('model = "m"', r"targets\[0\] names no target"),
        ('ttft_ms = 1\ntier = "none"', r"targets\[0\].tier: there is no tier 'none'"),
        ("ttft_ms = 0", r"targets\[0\].ttft_ms must be greater than 0"),
    ],
)
def test_a_target_that_says_nothing_is_a_mistake(path: Path, target: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read(path, f"[[targets]]\n{target}\n" + tenant("a", KEY))


def test_batch_keys_bring_the_work_of_the_batch_tier(path: Path) -> None:
    keys = f'keys = ["{digest_of("now")}", {{ sha256 = "{digest_of("later")}", class = "batch" }}]'
    text = TWO_TIERS + '[defaults]\ntier = "first"\nbatch_tier = "second"\n' + tenant("a", keys)
    book = read(path, text)
    now, later = book.by_key("now"), book.by_key("later")
    assert now is not None and later is not None
    assert (now.name, now.tier, later.name, later.tier) == ("a", 0, "a", 1)


def test_an_inherited_batch_tier_is_never_before_the_tenants_own(path: Path) -> None:
    defaults = '[defaults]\ntier = "first"\nbatch_tier = "first"\n'
    book = read(path, TWO_TIERS + defaults + tenant("a", KEY, 'tier = "second"'))
    assert (book.of("a").tier, book.of("a").batch_tier) == (1, 1)


def test_limits_for_all_hold_for_everybody_and_a_tenants_own_replaces_its_like(path: Path) -> None:
    for_all = (
        '[[limits]]\nwhat = "requests"\nper = "minute"\namount = 60\n'
        '[[limits]]\nwhat = "tokens"\nper = "minute"\namount = 1000\nmodel = "heavy-*"\nendpoint = "/v1/chat/*"\n'
    )
    own = (
        'limits = [{ what = "requests", per = "minute", amount = 600 }, { what = "tokens", per = "month", amount = 5 }]'
    )
    none = 'limits = [{ what = "requests", per = "minute", amount = "unlimited" }]'
    book = read(path, for_all + tenant("a", KEY, own) + tenant("b", none) + "[anonymous]\n")
    heavy = Limit(what="tokens", per="minute", amount=1000, endpoint="/v1/chat/*", model="heavy-*")
    sixty = Limit(what="requests", per="minute", amount=60)
    assert book.of("a").limits == (
        Limit(what="requests", per="minute", amount=600),
        heavy,
        Limit(what="tokens", per="month", amount=5),
    )
    assert book.of("b").limits == (heavy,)
    assert book.of("anonymous").limits == book.of("unknown").limits == (sixty, heavy)


def test_anonymous_requests_are_served_if_the_file_says_so(path: Path) -> None:
    book = read(path, '[defaults]\nweight = 4\n[anonymous]\nqueue_share = 0.1\nprefix_group = "all"\n')
    assert book.anonymous == TenantTerms("anonymous", weight=4, queue_share=0.1, prefix_group="all")


def test_a_proxy_is_trusted_if_the_file_says_so(path: Path) -> None:
    book = read(path, '[trusted_proxy]\nnetworks = ["10.0.0.0/8", "::1"]\nheader = "X-Tenant"\n')
    assert book.proxy is not None
    assert book.proxy.header == "x-tenant"
    assert [book.proxy.includes(peer) for peer in ("10.9.9.9", "::1", "::2")] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (tenant("a", KEY, "weight = 0"), "tenants[0].weight must be greater"),
        (tenant("a", KEY) + tenant("b") + tenant("a"), "tenants[2].name is 'a', as that of tenants[0]"),
        ('[[tiers]]\nname = "t"\n[[tiers]]\nname = "t"\n', "tiers[1].name is 't', as that of tiers[0]"),
        (tenant("anonymous", KEY), "tenants[0].name: 'anonymous' is for requests without a key; write [anonymous]"),
        (tenant("a", KEY) + tenant("b", KEY), "tenants[1].keys[0] (tenant b) is a key of tenant a already"),
        (tenant("a", f'keys = ["{digest_of("")}"]'), "tenants[0].keys[0] is the SHA-256 of an empty text"),
        (tenant("a", KEY, 'tier = "fist"'), "tenants[0].tier: there is no tier 'fist'; there are: standard"),
        (
            TWO_TIERS + '[defaults]\ntier = "first"\n' + tenant("a", KEY, 'tier = "fist"'),
            "tenants[0].tier: there is no tier 'fist'; did you mean first?",
        ),
        ('[anonymous]\n[defaults]\ntier = "x"', "defaults.tier: there is no tier 'x'"),
        (TWO_TIERS + tenant("a", KEY, 'tier = "first"'), "defaults.tier is missing: of 2 tiers"),
        (
            TWO_TIERS + '[defaults]\ntier = "second"\n' + tenant("a", KEY, 'batch_tier = "first"'),
            "tenants[0].batch_tier must not be served before the tenant's tier, 'second', as 'first' is",
        ),
        (
            '[[tiers]]\nname = "a"\nmin_share = 0.5\n[[tiers]]\nname = "b"\nmin_share = 0.5\n',
            "tiers: the min_share of all tiers together must be below 1",
        ),
        (
            '[[limits]]\nwhat = "tokens"\nper = "month"\namount = 1\n' * 2,
            "limits[1] counts what an earlier one counts: tokens per month",
        ),
        (tenant("a"), "lets nobody in"),
        ("", "lets nobody in"),
        ("[[tenants]\n", "is not TOML"),
    ],
)
def test_a_contradiction_is_told_in_one_line_with_the_file(path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(path, text)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tenants file .* cannot be read: No such file"):
        read_tenants(path)


def test_the_example_on_the_page_is_a_tenants_file(path: Path) -> None:
    [example] = re.findall(r"```toml\n# tenants.toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    book = read(path, example)
    assert [tier.name for tier in book.tiers] == ["premium", "standard", "background"]
    assert [each.name for each in book.tenants] == ["acme", "beta", "research"]
    assert book.anonymous is not None and book.proxy is not None
    acme, beta = book.of("acme"), book.of("beta")
    assert (acme.tier, acme.weight, acme.batch_tier) == (0, 3, 2)
    assert {(limit.what, limit.amount) for limit in acme.limits if limit.per == "month"} == {("tokens", 500_000_000)}
    assert any(limit.model == "*70b*" for limit in beta.limits), "a heavy model has a limit of its own"
    assert len(book.keys) == 4


def test_the_example_of_the_readme_is_a_tenants_file(path: Path) -> None:
    page = PAGE.parent.parent / "README.md"
    [example] = re.findall(r"```toml\n(\[\[tenants\]\].*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    book = read(path, example)
    assert [each.name for each in book.tenants] == ["acme", "beta"] and len(book.keys) == 2
