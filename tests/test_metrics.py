"""metrics.py and exposition.py: the exact series that a scrape reads, under any prefix, and engines that don't meet."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from fairstep.door import Coefficients, SliceRecord, StepRecord
from fairstep.errors import ConfigError
from fairstep.exposition import CONTENT_TYPE, TENANT_SECONDS, text_of
from fairstep.meters.durable import DurableMeter
from fairstep.meters.histogram import SECONDS
from fairstep.metrics import Metrics
from fairstep.request import FinishReason
from fairstep.stats import Live

DOC = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
TIMES = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_decode_time_seconds",
    "request_time_per_output_token_seconds",
    "iteration_seconds",
)


def scrape(metrics: Metrics, live: Live | None = None) -> dict[tuple[str, ...], float]:
    """Each sample by its name and its labels' values other than the model's."""
    text = metrics.render(metrics.stats(live)).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            rest = tuple(value for label, value in sorted(sample.labels.items()) if label != "model_name")
            assert (sample.name, *rest) not in found, "a series was written twice"
            found[(sample.name, *rest)] = sample.value
    return found


def step_record(*slices: SliceRecord) -> StepRecord:
    decodes = sum(part.length for part in slices if part.decode)
    return StepRecord(
        number=1,
        slices=slices,
        prompt_tokens=sum(part.length for part in slices) - decodes,
        decode_tokens=decodes,
        modelled=0.0,
        decode_only=0.0,
        target=0.0,
        coefficients=Coefficients(0.0, 0.0, 0.0, 0.0),
        plan_seconds=0.25,
        run_seconds=0.5,
    )


def lived(metrics: Metrics) -> Metrics:
    """One request of 100 prompt tokens, 64 of them cached, and three output tokens."""
    meter = metrics.tenants.of("anonymous")
    metrics.requests.accepted(100, 16)
    metrics.requests.queued(0.5)
    metrics.steps.cached(64, 100)
    metrics.steps.step(step_record(SliceRecord(1, 1, 64, 36, False), SliceRecord(2, 1, 7, 1, True)))
    meter.first_token.observe(1.0)
    meter.gap.observe(0.25)
    meter.gap.observe(0.75)
    meter.found(64)
    meter.served(uncached=36, outputs=3)
    metrics.requests.ended("stop", prompt_tokens=100, completion_tokens=3, seconds=2.0, decode_seconds=1.0)
    return metrics


def test_lines_are_written_exactly_so() -> None:
    metrics = lived(Metrics("tiny"))
    live = Live(running=2, waiting=1, kv_usage=0.25, pages_total=40)
    lines = metrics.render(metrics.stats(live)).decode().splitlines()
    for line in (
        "# TYPE fairstep:num_requests_running gauge",
        'fairstep:num_requests_running{model_name="tiny"} 2.0',
        'fairstep:num_requests_waiting{model_name="tiny"} 1.0',
        'fairstep:kv_cache_usage_perc{model_name="tiny"} 0.25',
        'fairstep:kv_cache_pages{model_name="tiny"} 40.0',
        "# TYPE fairstep:inter_token_latency_seconds histogram",
        'fairstep:inter_token_latency_seconds_bucket{le="0.2",model_name="tiny"} 0.0',
        'fairstep:inter_token_latency_seconds_bucket{le="0.25",model_name="tiny"} 1.0',
        'fairstep:inter_token_latency_seconds_bucket{le="+Inf",model_name="tiny"} 2.0',
        'fairstep:inter_token_latency_seconds_count{model_name="tiny"} 2.0',
        'fairstep:inter_token_latency_seconds_sum{model_name="tiny"} 1.0',
        "# TYPE fairstep:prompt_tokens_total counter",
        'fairstep:prompt_tokens_total{model_name="tiny"} 100.0',
        'fairstep:request_success_total{finished_reason="stop",model_name="tiny"} 1.0',
        'fairstep:request_success_total{finished_reason="abort",model_name="tiny"} 0.0',
        'fairstep:tenant_inter_token_latency_seconds_bucket{le="0.25",model_name="tiny",tenant="anonymous"} 1.0',
        'fairstep:tenant_inter_token_latency_seconds_count{model_name="tiny",tenant="anonymous"} 2.0',
        'fairstep:tenant_tokens_total{kind="cached",model_name="tiny",tenant="anonymous"} 64.0',
        'fairstep:tier_requests_total{model_name="tiny",tier="standard"} 0.0',
    ):
        assert lines.count(line) == 1, line
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


def test_each_time_goes_to_its_own_histogram_once() -> None:
    found = scrape(lived(Metrics()))
    sums = {name: (found[f"fairstep:{name}_count",], found[f"fairstep:{name}_sum",]) for name in TIMES}
    assert sums == {
        "time_to_first_token_seconds": (1, 1.0),
        "inter_token_latency_seconds": (2, 1.0),
        "e2e_request_latency_seconds": (1, 2.0),
        "request_queue_time_seconds": (1, 0.5),
        "request_decode_time_seconds": (1, 1.0),
        "request_time_per_output_token_seconds": (1, 0.5),
        "iteration_seconds": (1, 0.75),
    }


def test_tokens_are_counted_in_and_out() -> None:
    metrics = lived(Metrics())
    metrics.steps.preempted(2)
    metrics.steps.stale(3)
    metrics.steps.step(replace(step_record(), dropped=4))
    found = scrape(metrics)
    expected = {
        "prompt_tokens_total": 100,
        "generation_tokens_total": 3,
        "prefix_cache_queries_total": 100,
        "prefix_cache_hits_total": 64,
        "num_preemptions_total": 2,
        "stale_results_total": 3,
        "dropped_tokens_total": 4,
        "request_prompt_tokens_sum": 100,
        "request_generation_tokens_sum": 3,
        "request_params_max_tokens_sum": 16,
    }
    assert {name: found[f"fairstep:{name}",] for name in expected} == expected


def test_a_step_counts_prompt_and_decode_tokens_apart() -> None:
    metrics = Metrics()
    metrics.steps.step(
        step_record(SliceRecord(1, 1, 0, 20, False), *(SliceRecord(n, 1, 5, 1, True) for n in range(2, 10)))
    )
    metrics.steps.step(step_record(SliceRecord(2, 1, 6, 1, True)))
    found = scrape(metrics)
    assert found["fairstep:iteration_prefill_tokens_sum",] == 20
    assert found["fairstep:iteration_decode_tokens_sum",] == 9
    assert found["fairstep:iteration_tokens_total_sum",] == 29
    assert found["fairstep:iteration_sequences_sum",] == 10
    assert found["fairstep:iteration_prefill_tokens_bucket", "0.0"] == 1


@pytest.mark.parametrize(
    ("reason", "label"), [("stop", "stop"), ("length", "length"), ("cancelled", "abort"), ("error", "error")]
)
def test_each_end_is_counted_under_its_reason(reason: FinishReason, label: str) -> None:
    metrics = Metrics()
    before = {key for key in scrape(metrics) if key[0] == "fairstep:request_success_total"}
    metrics.requests.ended(reason, prompt_tokens=1, completion_tokens=0, seconds=0.1, decode_seconds=0.0)
    found = {key: value for key, value in scrape(metrics).items() if key[0] == "fairstep:request_success_total"}
    assert found.keys() == before and len(before) == 4  # every reason is there from the start
    assert [key[1] for key, value in found.items() if value] == [label]


@pytest.mark.parametrize(("completion_tokens", "decodes", "per_token"), [(0, 0, 0), (1, 1, 0), (2, 1, 1)])
def test_short_answers_have_no_time_between_tokens(completion_tokens: int, decodes: int, per_token: int) -> None:
    metrics = Metrics()
    metrics.requests.ended(
        "length", prompt_tokens=1, completion_tokens=completion_tokens, seconds=1.0, decode_seconds=0.5
    )
    found = scrape(metrics)
    assert found["fairstep:request_decode_time_seconds_count",] == decodes
    assert found["fairstep:request_time_per_output_token_seconds_count",] == per_token


@pytest.mark.parametrize("name", TIMES)
def test_every_time_resolves_one_millisecond(name: str) -> None:
    bounds = sorted(float(key[1]) for key in scrape(Metrics()) if key[0] == f"fairstep:{name}_bucket")
    assert bounds[:10] == pytest.approx([ms / 1000 for ms in range(1, 11)])
    assert bounds == [*SECONDS, float("inf")]


@pytest.mark.parametrize(("value", "first"), [(0.0, 0.001), (0.001, 0.001), (0.0011, 0.002), (8000.0, float("inf"))])
def test_a_value_counts_in_every_bucket_from_the_first_that_holds_it(value: float, first: float) -> None:
    metrics = Metrics()
    metrics.tenants.of("anyone").first_token.observe(value)
    buckets = {
        float(key[1]): count
        for key, count in scrape(metrics).items()
        if key[0] == "fairstep:time_to_first_token_seconds_bucket"
    }
    assert [bound for bound, count in sorted(buckets.items()) if count] == [b for b in sorted(buckets) if b >= first]


def test_vllm_bounds_are_among_ours() -> None:
    for_first_token = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40)
    for_gaps = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
    for_requests = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
    assert {*for_first_token, 80, 160, 640, 2560, *for_gaps, *for_requests} <= set(SECONDS)
    assert list(SECONDS) == sorted(set(SECONDS))


def test_another_prefix_gives_the_same_series_under_it() -> None:
    ours, theirs = scrape(lived(Metrics())), scrape(lived(Metrics(prefix="vllm")))
    assert {(name.replace("fairstep:", "vllm:"), *rest): value for (name, *rest), value in ours.items()} == theirs
    assert ("vllm:num_requests_running",) in theirs


@pytest.mark.parametrize("prefix", ["", "a b", "9lives", "a-b", "ü", "a:", "a\n"])
def test_a_prefix_no_scraper_would_read_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="metrics_prefix"):
        Metrics(prefix=prefix)


def test_a_model_name_of_any_characters_survives() -> None:
    name = 'a"b\\c\nd/é'
    families = text_string_to_metric_families(Metrics(name).render(Metrics(name).stats()).decode())
    assert {sample.labels["model_name"] for family in families for sample in family.samples} == {name}


def test_gauges_follow_the_state_handed_in_and_nothing_else() -> None:
    metrics = lived(Metrics())
    busy = scrape(metrics, Live(running=3, waiting=9, kv_usage=1.0, pages_total=8))
    idle = scrape(metrics, Live(pages_total=8))
    changed = {name: (busy[name,], idle[name,]) for (name, *rest) in busy if not rest and busy[name,] != idle[name,]}
    assert changed == {
        "fairstep:num_requests_running": (3, 0),
        "fairstep:num_requests_waiting": (9, 0),
        "fairstep:kv_cache_usage_perc": (1, 0),
    }


def test_two_engines_in_one_process_do_not_meet() -> None:
    fresh = scrape(Metrics("m"))
    one, other = Metrics("m"), Metrics("m")
    lived(one)
    assert scrape(other) == fresh != scrape(one)
    assert scrape(Metrics("m")) == fresh


def test_a_host_that_shares_its_own_metrics_between_processes_does_not_join_ours(tmp_path: Path) -> None:
    script = (
        "from fairstep.metrics import Metrics\n"
        "one, other = Metrics('m'), None\n"
        "one.tenants.of('a').served(uncached=0, outputs=5)\n"
        "other = Metrics('m')\n"
        "assert b'generation_tokens_total{model_name=\"m\"} 0.0' in other.render(other.stats())\n"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []


def test_counters_never_fall_and_no_creation_times_are_written() -> None:
    metrics = lived(Metrics())
    before = scrape(metrics)
    after = scrape(lived(metrics))
    assert all(after[key] >= value for key, value in before.items())
    assert not [key for key in after if key[0].endswith("_created")]


def test_the_page_names_every_metric_and_no_other() -> None:
    rows = [line.split("`")[1] for line in DOC.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    text = text_of([Metrics().stats()], "fairstep", DurableMeter().stats()).decode()
    families = [line.split()[2].removeprefix("fairstep:") for line in text.splitlines() if line.startswith("# TYPE")]
    assert sorted(rows) == sorted(families)


def test_a_tenants_bounds_are_among_those_that_are_counted() -> None:
    assert set(TENANT_SECONDS) <= set(SECONDS) and list(TENANT_SECONDS) == sorted(TENANT_SECONDS)
    found = scrape(lived(Metrics()))
    name = "fairstep:tenant_time_to_first_token_seconds_bucket"
    told = {float(key[1]): value for key, value in found.items() if key[0] == name and key[2] == "anonymous"}
    assert told == {bound: float(bound >= 1.0) for bound in (*TENANT_SECONDS, float("inf"))}


def test_what_all_tenants_were_told_is_the_sum_of_each() -> None:
    metrics = lived(Metrics())
    for name in ("acme", "beta"):
        metrics.tenants.of(name).first_token.observe(2.0)
        metrics.tenants.of(name).served(uncached=10, outputs=7)
    found = scrape(metrics)
    assert found["fairstep:time_to_first_token_seconds_count",] == 3
    assert found["fairstep:time_to_first_token_seconds_sum",] == 5.0
    assert found["fairstep:generation_tokens_total",] == 17


@pytest.mark.parametrize("name", ['a"b', "a\\b", "é@host:1/x"])
def test_a_tenants_name_of_any_characters_survives(name: str) -> None:
    metrics = Metrics()
    metrics.tenants.of(name).refused("rate_limit_exceeded")
    assert scrape(metrics)["fairstep:tenant_refused_total", "rate_limit_exceeded", name] == 1


def test_what_is_not_known_is_not_written() -> None:
    metrics = Metrics()
    assert metrics.stats().ledger.capacity is None
    assert ("fairstep:capacity_cost_per_second",) not in scrape(metrics)
    told = metrics.render(metrics.stats(capacity=2500.0)).decode()
    assert 'fairstep:capacity_cost_per_second{model_name=""} 2.5\n' in told
