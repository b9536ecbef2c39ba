"""A simulation in numbers: each tenant's service, latencies, goodput and refusals, and what holds for all."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from .logbook import LOST, Logbook, Story
from .measures import Difference, windowed_difference, worst_gap


@dataclass(frozen=True, slots=True)
class Percentiles:
    """By nearest rank, in seconds; None where nothing was measured."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Percentiles":
        ordered = sorted(values)
        if not ordered:
            return cls(None, None, None)
        return cls(*(ordered[ceil(part * len(ordered) / 100) - 1] for part in (50, 95, 99)))


@dataclass(frozen=True, slots=True)
class TenantSummary:
    """One tenant. service: weighted tokens computed for it; share: its part of all. machine: part of the steps' time.

    ttft, e2e: from arrival. queue: from arrival until sent to the worker. goodput: whole answers in time, a second.
    ended: how many ended in which way; refused: by code. lost: how many got no whole answer, but for those whose
    clients went away and those under way at the end.
    """

    requests: int
    ended: Mapping[str, int]
    refused: Mapping[str, int]
    lost: int
    service: float
    share: float
    machine: float
    tokens: int
    queue: Percentiles
    ttft: Percentiles
    itl: Percentiles
    e2e: Percentiles
    goodput: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A run. difference: VTC's, of windows of a minute. worst_gap: of two tenants that both wait, in weighted tokens.

    busy: part of the time that steps took. seconds, tokens_per_second: of virtual time.
    """

    trace: str
    seconds: float
    steps: int
    busy: float
    tokens_per_second: float
    goodput: float
    recomputed: int
    late_results: int
    difference: Difference
    worst_gap: float
    tenants: Mapping[str, TenantSummary]


def summarize(log: Logbook) -> Summary:
    """What a run comes to."""
    seconds = log.ended_at or 1.0  # nothing happened at all
    stories: dict[str, list[Story]] = {name: [] for name in log.books}
    for story in log.stories:
        stories[story.arrival.tenant].append(story)
    total = sum(book.service.total for book in log.books.values()) or 1.0
    tenants = {name: _tenant(log, name, own, total, seconds) for name, own in stories.items()}
    return Summary(
        trace=log.trace.name,
        seconds=log.ended_at,
        steps=log.steps,
        busy=log.busy / seconds,
        tokens_per_second=log.tokens / seconds,
        goodput=sum(each.goodput for each in tenants.values()),
        recomputed=log.recomputed,
        late_results=log.late_results,
        difference=windowed_difference(log),
        worst_gap=worst_gap(log),
        tenants=tenants,
    )


def _tenant(log: Logbook, name: str, stories: list[Story], total: float, seconds: float) -> TenantSummary:
    book = log.books[name]
    ended = Counter(story.end or "unfinished" for story in stories)
    return TenantSummary(
        requests=len(stories),
        ended=dict(sorted(ended.items())),
        refused=dict(sorted(Counter(story.why for story in stories if story.end == "refused").items())),
        lost=sum(ended[end] for end in LOST),
        service=book.service.total,
        share=book.service.total / total,
        machine=book.machine.total / log.busy if log.busy else 0.0,
        tokens=sum(story.outputs for story in stories),
        queue=Percentiles.of(s.sent_at - s.arrival.at for s in stories if s.sent_at is not None),
        ttft=Percentiles.of(s.first_at - s.arrival.at for s in stories if s.first_at is not None),
        itl=Percentiles.of(book.gaps),
        e2e=Percentiles.of(s.ended_at - s.arrival.at for s in stories if s.is_done and s.ended_at is not None),
        goodput=sum(story.is_good for story in stories) / seconds,
    )
