"""Stats as Prometheus text (format 0.0.4), names after vLLM's where it has one. Written here, a line at a time.

prometheus_client parses its own names and labels anew for each line, 6 microseconds of it: too slow for some thousand
lines of tenants. Labels stand in the order of their names.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate, chain, pairwise
from typing import Literal

from .errors import ConfigError
from .fairness.pricing import UNIT
from .meters.histogram import SECONDS
from .request import FinishReason
from .stats import AccountStats, Distribution, DurableStats, Stats, TenantStats, TierStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REASONS: dict[FinishReason, str] = {  # ours, then vLLM's
    "stop": "stop",
    "length": "length",
    "cancelled": "abort",
    "error": "error",
}
# bounds of a tenant's times, some of those that are counted: there are many tenants
TENANT_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 240.0)
_CUTS = tuple(SECONDS.index(bound) + 1 for bound in TENANT_SECONDS)
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Kind = Literal["gauge", "counter", "histogram"]
Sample = tuple[Mapping[str, str], float | int | Distribution | None]


def check_prefix(prefix: str) -> None:
    """Raise ConfigError unless a scraper can read names that begin so."""
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"metrics_prefix must be letters, digits and _ and not begin with a digit, not {prefix!r}: try 'vllm'"
        )


def text_of(told: Iterable[Stats], prefix: str, durable: DurableStats | None = None) -> bytes:
    """Everything of some engines, as text of CONTENT_TYPE, and of their server. Raises ConfigError on a bad prefix."""
    check_prefix(prefix)
    page = _Page(prefix)
    for stats in told:
        page.tell_of(stats.model_name)
        _requests(page, stats)
        _steps(page, stats)
        _failures(page, stats)
        _ledger(page, stats)
        _tiers(page, stats.tiers)
        _tenants(page, stats.tenants)
        _accounts(page, stats.accounts)
    if durable is not None:
        page.tell_of_all()
        _durable(page, durable)
    return page.text()


class _Page:
    """Families of samples, being written."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._model: dict[str, str] = {}
        self._families: dict[str, list[str]] = {}  # lines by name
        self._bounds: dict[tuple[float, ...], tuple[str, ...]] = {}  # as they are written

    def tell_of(self, model_name: str) -> None:
        """Samples to come are this one's."""
        self._model = {"model_name": model_name}

    def tell_of_all(self) -> None:
        """Samples to come are of no model."""
        self._model = {}

    def gauge(self, name: str, text: str, value: float | None) -> None:
        """One sample, or none if the value is not known."""
        self.family("gauge", name, text, [({}, value)])

    def counter(self, name: str, text: str, value: float) -> None:
        """One sample."""
        self.family("counter", name, text, [({}, value)])

    def histogram(self, name: str, text: str, value: Distribution) -> None:
        """One histogram."""
        self.family("histogram", name, text, [({}, value)])

    def family(self, kind: Kind, name: str, text: str, samples: Iterable[Sample]) -> None:
        """Samples of one name, each with labels of its own. None: not known, and not written."""
        name = f"{self._prefix}:{name}"
        lines = self._families.setdefault(name, [f"# HELP {name} {text}", f"# TYPE {name} {kind}"])
        for labels, value in samples:
            told = _labels({**self._model, **labels})
            if isinstance(value, Distribution):
                lines += self._histogram_lines(name, told, value)
            elif value is not None:
                lines.append(f"{name}{{{told}}} {float(value)!r}" if told else f"{name} {float(value)!r}")

    def _histogram_lines(self, name: str, labels: str, value: Distribution) -> list[str]:
        bounds = self._bounds.get(value.bounds)
        if bounds is None:
            bounds = self._bounds[value.bounds] = (*map(repr, map(float, value.bounds)), "+Inf")
        counts = list(accumulate(value.counts))
        begin, end = f'{name}_bucket{{le="', f'",{labels}}} '  # le comes before all labels that histograms have
        return [
            *[f"{begin}{bound}{end}{count}.0" for bound, count in zip(bounds, counts, strict=True)],
            f"{name}_count{{{labels}}} {counts[-1]}.0",
            f"{name}_sum{{{labels}}} {float(value.sum)!r}",
        ]

    def text(self) -> bytes:
        return ("\n".join(chain.from_iterable(self._families.values())) + "\n").encode()


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))


def _requests(page: _Page, stats: Stats) -> None:
    live, of = stats.live, stats.requests
    page.gauge("num_requests_running", "Requests that the worker computes.", live.running)
    page.gauge("num_requests_waiting", "Requests accepted and not running.", live.waiting)
    ended = [({"finished_reason": REASONS[reason]}, count) for reason, count in of.ended.items()]
    page.family("counter", "request_success_total", "Requests ended, by reason.", ended)
    page.histogram("time_to_first_token_seconds", "Arrival to first token.", of.first_token)
    page.histogram("inter_token_latency_seconds", "Token to next token, a gap each.", of.gap)
    page.histogram("e2e_request_latency_seconds", "Arrival to end.", of.whole)
    page.histogram("request_queue_time_seconds", "Arrival to first admission.", of.queue)
    page.histogram("request_decode_time_seconds", "First token to last token.", of.decode)
    per_token = "Decode time over the tokens after the first."
    page.histogram("request_time_per_output_token_seconds", per_token, of.per_token)
    page.histogram("request_prompt_tokens", "Prompt tokens of an ended request.", of.prompt_size)
    page.histogram("request_generation_tokens", "Tokens of an ended request's answer.", of.answer_size)
    page.histogram("request_params_max_tokens", "Most output tokens, as accepted.", of.most_tokens)
    page.counter("requests_replayed_total", "Requests told another's answer, by idempotency key.", of.replayed)
    page.counter("prompt_tokens_total", "Prompt tokens of accepted requests.", of.prompt_tokens)
    page.counter("generation_tokens_total", "Output tokens received from the worker.", of.output_tokens)


def _steps(page: _Page, stats: Stats) -> None:
    live, of = stats.live, stats.steps
    page.gauge("kv_cache_usage_perc", "Part of the pages that sequences hold, 0 to 1.", live.kv_usage)
    page.gauge("kv_cache_pages", "Pages of KV memory.", live.pages_total)
    page.histogram("iteration_tokens_total", "Tokens computed in a step.", of.tokens)
    page.histogram("iteration_prefill_tokens", "Prompt tokens of a step.", of.prompt_tokens)
    page.histogram("iteration_decode_tokens", "Decode tokens of a step.", of.decode_tokens)
    page.histogram("iteration_sequences", "Sequences in a step.", of.sequences)
    page.histogram("iteration_seconds", "Plan and run of a step.", of.seconds)
    lost = "Sequences that lost seat and pages, to be recomputed."
    page.counter("num_preemptions_total", lost, of.preemptions)
    page.counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", of.prefix_looked_up)
    page.counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", of.prefix_found)
    page.counter("stale_results_total", "Results dropped: of an attempt no longer current.", of.stale_results)
    page.counter("dropped_tokens_total", "Computed for sequences that had ended, by steps ahead.", of.dropped_tokens)


def _failures(page: _Page, stats: Stats) -> None:
    live, of = stats.live, stats.failures
    page.gauge("workers_ready", "Workers that compute.", live.workers)
    page.gauge("workers_loading", "Workers that are being started.", live.loading)
    page.gauge("workers_spare", "Workers that are loaded and wait for a place.", live.spare)
    page.gauge("desired_workers", "Workers that what runs, what waits and its deadlines ask for.", live.desired)
    page.histogram("worker_load_seconds", "Start of a worker until it is ready.", of.loads)
    page.counter("worker_deaths_total", "Workers that ended and were not told to.", of.deaths)
    page.counter("worker_hangs_total", "Of these, ended because no Report came.", of.hung)
    page.counter("requests_retried_total", "Requests to be computed again after a worker's death.", of.retried)
    page.counter("requests_isolated_total", "Requests that alone brought a step or a worker down.", of.isolated)
    page.gauge("retry_budget", "Requests that may be computed again.", of.retries_left)


def _durable(page: _Page, of: DurableStats) -> None:
    page.gauge("responses_in_progress", "Stored responses in the making.", of.responses_making)
    each = [({"outcome": outcome}, count) for outcome, count in of.responses.items()]
    page.family("counter", "responses_ended_total", "Stored responses that ended, or were left.", each)
    page.gauge("batches_in_progress", "Batches in the making.", of.batches_making)
    page.gauge("batch_lines_left", "Lines of these that have no result yet.", of.lines_left)
    each = [({"outcome": outcome}, count) for outcome, count in of.lines.items()]
    page.family("counter", "batch_lines_total", "Lines of batches that have their result.", each)


def _ledger(page: _Page, stats: Stats) -> None:
    of, cost = stats.ledger, stats.ledger.cost
    page.gauge("quantum_cost", "What a tenant of weight 1 gets a round.", of.quantum / UNIT)
    page.gauge("largest_quantum_cost", "The same, the most it ever was.", of.largest_quantum / UNIT)
    prices = cost.prices()
    kinds = {"request": prices.request, "prompt": prices.prompt, "cached": prices.cached, "output": prices.output}
    each = [({"cost_model": cost.kind, "token": kind}, units / UNIT) for kind, units in kinds.items()]
    page.family("gauge", "token_cost", "What a token of each kind costs, and a request itself.", each)
    page.counter("recomputed_tokens_total", "Tokens computed again, on no tenant's bill.", of.recomputed)
    page.counter("system_cost_total", "What recomputing would have cost.", of.system_units / UNIT)
    page.gauge("offered_cost_per_second", "What is asked for a second, of late.", of.offered / UNIT)
    capacity = None if of.capacity is None else of.capacity / UNIT
    page.gauge("capacity_cost_per_second", "What is served a second while others wait.", capacity)


def _tiers(page: _Page, tiers: Iterable[TierStats]) -> None:
    each = [({"tier": tier.name}, tier) for tier in tiers]

    def tell(kind: Kind, name: str, text: str, values: Iterable[float | None]) -> None:
        pairs = zip(each, values, strict=True)
        page.family(kind, f"tier_{name}", text, (((labels, value)) for (labels, _), value in pairs))

    tell("counter", "requests_total", "Requests ended, but by their client.", (t.ended for _, t in each))
    tell("counter", "goodput_total", "Of these, answered within the tier's targets.", (t.good for _, t in each))
    tell("gauge", "waiting", "Sequences in the waiting room.", (t.waiting for _, t in each))
    tell("gauge", "oldest_age_seconds", "Age of the oldest that waits.", (t.oldest_age for _, t in each))
    tell("gauge", "queued_cost", "What admitting those waiting will charge.", (t.queued / UNIT for _, t in each))
    wait = "Until all that waits has begun, as measured."
    tell("gauge", "predicted_wait_seconds", wait, (t.predicted_wait for _, t in each))
    late = "Part of the queued cost that is due before it is expected to begin, 0 to 1."
    tell("gauge", "deadline_pressure", late, (t.pressure for _, t in each))
    tell(
        "gauge", "offered_cost_per_second", "What is asked for a second, of late.", (t.offered / UNIT for _, t in each)
    )
    more = "1 while more is asked for, here and in tiers before, than can be served."
    tell("gauge", "saturation_predicted", more, (float(t.saturated) for _, t in each))
    bound = "Most that two tenants' charges may differ by weight while both wait."
    tell("gauge", "fairness_bound_cost", bound, (t.bound / UNIT for _, t in each))


def _tenants(page: _Page, tenants: Iterable[TenantStats]) -> None:
    each = [({"tenant": tenant.name}, tenant) for tenant in tenants]
    accepted = [(labels, tenant.accepted) for labels, tenant in each]
    page.family("counter", "tenant_accepted_total", "Requests accepted.", accepted)
    refused = [({**labels, "reason": code}, n) for labels, tenant in each for code, n in tenant.refused.items()]
    page.family("counter", "tenant_refused_total", "Requests that ended with an error, by its code.", refused)
    tokens = [
        ({**labels, "kind": kind}, count)
        for labels, tenant in each
        for kind, count in (
            ("prompt", tenant.uncached_tokens),
            ("cached", tenant.cached_tokens),
            ("output", tenant.output_tokens),
        )
    ]
    page.family("counter", "tenant_tokens_total", "Tokens served, recomputed ones not counted.", tokens)
    yields = [(labels, tenant.yields) for labels, tenant in each]
    page.family("counter", "tenant_yields_total", "Sequences that gave their seat back.", yields)
    waits = [
        ({**labels, "part": part}, _coarse(waited))
        for labels, tenant in each
        for part, waited in (("choice", tenant.by_choice), ("worker", tenant.for_worker))
    ]
    page.family("histogram", "tenant_queue_time_seconds", "Accepted to first admission, in its two parts.", waits)
    first = [(labels, _coarse(tenant.first_token)) for labels, tenant in each]
    page.family("histogram", "tenant_time_to_first_token_seconds", "Arrival to first token.", first)
    gaps = [(labels, _coarse(tenant.gap)) for labels, tenant in each]
    page.family("histogram", "tenant_inter_token_latency_seconds", "Token to next token, a gap each.", gaps)


def _accounts(page: _Page, accounts: Iterable[AccountStats]) -> None:
    each = [({"tenant": account.tenant, "tier": account.tier}, account) for account in accounts]

    def tell(name: str, text: str, values: Iterable[float | None]) -> None:
        pairs = zip(each, values, strict=True)
        page.family("gauge", f"tenant_{name}", text, ((labels, value) for (labels, _), value in pairs))

    tell("weight", "Weight beside the others of the tier.", (a.weight for _, a in each))
    tell("share", "Part of the tier by weight, while it waits or runs.", (a.share for _, a in each))
    tell("waiting", "Sequences in the waiting room.", (a.waiting for _, a in each))
    tell("running", "Sequences in the worker.", (a.running for _, a in each))
    tell("queued_cost", "What admitting those waiting will charge.", (a.queued / UNIT for _, a in each))
    tell("charged_cost", "Charged, less what was given back.", (a.charged / UNIT for _, a in each))
    tell("debt_cost", "Owed; negative: left of its turn.", (a.debt / UNIT for _, a in each))
    most = "Most charged from one admission up to the next: U."
    tell("largest_charge_cost", most, (a.largest_charge / UNIT for _, a in each))
    fall = "Most that the sum of charges ever fell: R."
    tell("largest_refund_cost", fall, (a.largest_refund / UNIT for _, a in each))
    wait = "Until a request that came now would begin, as measured."
    tell("predicted_wait_seconds", wait, (a.predicted_wait for _, a in each))


def _coarse(value: Distribution) -> Distribution:
    """A tenant's times with the bounds that are told of them."""
    ends = (*_CUTS, len(value.counts))
    counts = tuple(sum(value.counts[begin:end]) for begin, end in pairwise((0, *ends)))
    return Distribution(TENANT_SECONDS, counts, value.sum)
