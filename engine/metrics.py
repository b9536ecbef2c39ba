"""What an engine counts, as Prometheus text under vLLM's names. Knows no clock, torch or HTTP: it is handed seconds.

Counts are kept here and prometheus_client only writes them out: its own counters share files between processes when
PROMETHEUS_MULTIPROC_DIR is set, and two engines would meet there. Gauges are not kept: `render` takes the live state.
docs/metrics.md says what each time begins and ends with.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from .door import StepRecord
from .errors import ConfigError
from .request import FinishReason

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
REASONS: dict[FinishReason, str] = {  # ours, then vLLM's
    "stop": "stop",
    "length": "length",
    "cancelled": "abort",
    "error": "error",
}

# all of vLLM's bounds of all its times, and finer ones below for a small model: each millisecond to 10
SECONDS = (
    *(ms / 1000 for ms in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 35, 40, 50, 60, 75, 80)),
    *(0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 80.0, 120.0, 160.0, 240.0, 480.0, 640.0, 960.0, 1920.0, 2560.0, 7680.0),
)
REQUEST_TOKENS = tuple(step * 10**power for power in range(6) for step in (1, 2, 5))
STEP_TOKENS = (0, *(2**power for power in range(15)))
STEP_SEQUENCES = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Live:
    """State at the moment of a scrape. kv_usage: part of the pages that sequences hold, 0 to 1.

    waiting counts every other live request, in the front's room or held by the worker.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    pages_total: int = 0


class _Counter:
    """A number that only rises."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.value = 0

    def inc(self, by: int = 1) -> None:
        self.value += by

    def family(self, prefix: str, model_name: str) -> Metric:
        family = CounterMetricFamily(f"{prefix}:{self.name}", self.text, labels=["model_name"])
        family.add_metric([model_name], self.value)
        return family


class _Histogram:
    """How many values lay at or below each bound, and their sum."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self.name, self.text, self.bounds = name, text, bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def family(self, prefix: str, model_name: str) -> Metric:
        names = [*map(floatToGoString, self.bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self.counts), strict=True))
        family = HistogramMetricFamily(f"{prefix}:{self.name}", self.text, labels=["model_name"])
        family.add_metric([model_name], buckets, self.sum)
        return family


class Metrics:
    """The counters and histograms of one engine, all times in seconds. Raises ConfigError on an unusable prefix."""

    def __init__(self, model_name: str = "", prefix: str = "fairstep") -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(
                f"metrics_prefix must be letters, digits and _ and not begin with a digit, not {prefix!r}: try 'vllm'"
            )
        self.prefix = prefix
        self.model_name = model_name
        self._series: list[_Counter | _Histogram] = []
        self._ended: dict[FinishReason, int] = dict.fromkeys(REASONS, 0)
        self._make_request_metrics()
        self._make_step_metrics()

    def _make_request_metrics(self) -> None:
        times, sizes = SECONDS, REQUEST_TOKENS
        self._ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token.", times)
        self._gap = self._histogram("inter_token_latency_seconds", "Token to next token, a gap each.", times)
        self._e2e = self._histogram("e2e_request_latency_seconds", "Arrival to end.", times)
        self._queue = self._histogram("request_queue_time_seconds", "Arrival to first admission.", times)
        self._decode = self._histogram("request_decode_time_seconds", "First token to last token.", times)
        self._per_token = self._histogram(
            "request_time_per_output_token_seconds", "Decode time over the tokens after the first.", times
        )
        self._prompt_size = self._histogram("request_prompt_tokens", "Prompt tokens of an ended request.", sizes)
        self._answer_size = self._histogram("request_generation_tokens", "Tokens of an ended request's answer.", sizes)
        self._limit = self._histogram("request_params_max_tokens", "Most output tokens, as accepted.", sizes)
        self._prompt = self._counter("prompt_tokens", "Prompt tokens of accepted requests.")
        self._generation = self._counter("generation_tokens", "Output tokens received from the worker.")

    def _make_step_metrics(self) -> None:
        self._step_tokens = self._histogram("iteration_tokens_total", "Tokens computed in a step.", STEP_TOKENS)
        self._step_prefill = self._histogram("iteration_prefill_tokens", "Prompt tokens of a step.", STEP_TOKENS)
        self._step_decode = self._histogram("iteration_decode_tokens", "Decode tokens of a step.", STEP_TOKENS)
        self._step_sequences = self._histogram("iteration_sequences", "Sequences in a step.", STEP_SEQUENCES)
        self._step_seconds = self._histogram("iteration_seconds", "Plan and run of a step.", SECONDS)
        self._preemptions = self._counter("num_preemptions", "Sequences that lost seat and pages, to be recomputed.")
        self._queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._stale = self._counter("stale_results", "Results dropped: of an attempt no longer current.")

    def accepted(self, prompt_tokens: int, max_tokens: int) -> None:
        """A request was accepted; max_tokens is the most it may get."""
        self._prompt.inc(prompt_tokens)
        self._limit.observe(max_tokens)

    def queued(self, seconds: float) -> None:
        """A request was admitted for the first time, so long after its arrival."""
        self._queue.observe(seconds)

    def cached(self, tokens: int, looked_up: int) -> None:
        """A prompt of `looked_up` tokens met the prefix cache, which had `tokens` of them."""
        self._queries.inc(looked_up)
        self._hits.inc(tokens)

    def first_token(self, seconds: float) -> None:
        """A request's first token came, so long after its arrival."""
        self._ttft.observe(seconds)

    def gap(self, seconds: float) -> None:
        """A request's next token came, so long after the one before."""
        self._gap.observe(seconds)

    def tokens(self, count: int) -> None:
        """Output tokens came."""
        self._generation.inc(count)

    def finished(
        self, reason: FinishReason, *, prompt_tokens: int, completion_tokens: int, seconds: float, decode_seconds: float
    ) -> None:
        """A request ended, whatever for: `seconds` after arrival, `decode_seconds` after its first token."""
        self._ended[reason] += 1
        self._e2e.observe(seconds)
        self._prompt_size.observe(prompt_tokens)
        self._answer_size.observe(completion_tokens)
        if completion_tokens > 0:
            self._decode.observe(decode_seconds)
        if completion_tokens > 1:
            self._per_token.observe(decode_seconds / (completion_tokens - 1))

    def step(self, record: StepRecord) -> None:
        """The worker made a step."""
        self._step_tokens.observe(record.prompt_tokens + record.decode_tokens)
        self._step_prefill.observe(record.prompt_tokens)
        self._step_decode.observe(record.decode_tokens)
        self._step_sequences.observe(len({(part.seq, part.attempt) for part in record.slices}))
        self._step_seconds.observe(record.plan_seconds + record.run_seconds)

    def preempted(self, count: int) -> None:
        """Sequences were preempted."""
        self._preemptions.inc(count)

    def stale(self, count: int) -> None:
        """Results were dropped as stale."""
        self._stale.inc(count)

    def render(self, live: Live) -> bytes:
        """Everything as text of CONTENT_TYPE, gauges from `live`."""
        series = [kept.family(self.prefix, self.model_name) for kept in self._series]
        return generate_latest(_Page([*self._gauges(live), self._success(), *series]))

    def _gauges(self, live: Live) -> list[Metric]:
        return [
            self._gauge("num_requests_running", "Requests that the worker computes.", live.running),
            self._gauge("num_requests_waiting", "Requests accepted and not running.", live.waiting),
            self._gauge("kv_cache_usage_perc", "Part of the pages that sequences hold, 0 to 1.", live.kv_usage),
            self._gauge("kv_cache_pages", "Pages of KV memory.", live.pages_total),
        ]

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"{self.prefix}:{name}", text, labels=["model_name"])
        family.add_metric([self.model_name], value)
        return family

    def _success(self) -> Metric:
        labels = ["model_name", "finished_reason"]
        family = CounterMetricFamily(f"{self.prefix}:request_success", "Requests ended, by reason.", labels=labels)
        for reason, count in self._ended.items():
            family.add_metric([self.model_name, REASONS[reason]], count)
        return family

    def _counter(self, name: str, text: str) -> _Counter:
        made = _Counter(name, text)
        self._series.append(made)
        return made

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> _Histogram:
        made = _Histogram(name, text, bounds)
        self._series.append(made)
        return made


class _Page(Collector):
    """Metrics about to be written."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
