"""How fairly service was shared: VTC's windowed difference (Sheng et al., OSDI 2024), the worst gap of two tenants.

Service and demand are divided by the tenant's weight; in tokens, as logbook counts them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pvariance

from .logbook import Book, Curve, Logbook, Story

WINDOW, WARM_UP, TICKS = 60.0, 30.0, 100
MOST_COMPARED = 32  # tenants whose pairs are looked at: those with most service

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """Service that tenants had less than the best served one and did ask for, summed over tenants, a second."""

    most: float
    mean: float
    variance: float


def windowed_difference(
    log: Logbook, *, window: float = WINDOW, warm_up: float = WARM_UP, ticks: int = TICKS
) -> Difference:
    """Over windows whose centres lie evenly between the warm-up and the end, each wholly inside the run.

    In a window a tenant lacks min(the most that any had - its own, |its demand - its own|), as the paper's code has it:
    demand is what its arrivals in the window ask for. A run that is shorter than a window is one window.
    """
    if not log.ended_at:
        return Difference(0.0, 0.0, 0.0)
    window = min(window, log.ended_at)
    first = min(max(warm_up, window / 2), log.ended_at - window / 2)
    last = log.ended_at - window / 2
    centres = [first + (last - first) * tick / max(1, ticks - 1) for tick in range(ticks if last > first else 1)]
    weights = weights_of(log)
    lacks = [_lack(log.books, weights, centre - window / 2, centre + window / 2) for centre in centres]
    return Difference(max(lacks), fmean(lacks), pvariance(lacks))


def _lack(books: dict[str, Book], weights: dict[str, int], begin: float, end: float) -> float:
    served = {name: book.service.between(begin, end) / weights[name] for name, book in books.items()}
    asked = {name: book.demand.between(begin, end) / weights[name] for name, book in books.items()}
    most = max(served.values(), default=0.0)
    return sum(min(most - served[name], abs(asked[name] - served[name])) for name in books) / (end - begin)


def worst_gap(log: Logbook) -> float:
    """The most by which the service of two tenants of one tier grew apart while both had somebody waiting.

    Over all pairs and all windows: for each stretch in which both wait, the range of the difference of their sums.
    """
    book = log.trace.book
    waits = waiting_spans(log.stories)
    weights = weights_of(log)
    worst = 0.0
    busiest = sorted(waits, key=lambda name: (-log.books[name].service.total, name))[:MOST_COMPARED]
    for one, other in combinations(busiest, 2):
        if book.of(one).tier != book.of(other).tier:
            continue
        for span in _overlaps(waits[one], waits[other]):
            curves = (log.books[one].service, log.books[other].service)
            worst = max(worst, _range(*curves, weights[one], weights[other], span))
    return worst


def waiting_spans(stories: Iterable[Story]) -> dict[str, list[Span]]:
    """For each tenant, when somebody of it waited: spans in order, which do not touch."""
    spans: dict[str, list[Span]] = {}
    for story in stories:  # in order of arrival
        leaves = story.sent_at if story.sent_at is not None else story.ended_at
        begin, end = story.arrival.at, float("inf") if leaves is None else leaves
        own = spans.setdefault(story.arrival.tenant, [])
        if own and begin <= own[-1][1]:
            own[-1] = own[-1][0], max(own[-1][1], end)
        elif end > begin:
            own.append((begin, end))
    return spans


def weights_of(log: Logbook) -> dict[str, int]:
    """Each tenant's weight."""
    return {name: log.trace.book.of(name).weight for name in log.books}


def _overlaps(ours: Sequence[Span], theirs: Sequence[Span]) -> Iterable[Span]:
    """Where both lists of spans have one."""
    i = j = 0
    while i < len(ours) and j < len(theirs):
        begin, end = max(ours[i][0], theirs[j][0]), min(ours[i][1], theirs[j][1])
        if begin < end:
            yield begin, end
        if ours[i][1] < theirs[j][1]:
            i += 1
        else:
            j += 1


def _range(one: Curve, other: Curve, weight: int, other_weight: int, span: Span) -> float:
    """Most less least of one / weight - other / other_weight over a span, its ends included."""
    begin, end = span
    instants = [begin, *(at for curve in (one, other) for at in curve.inside(begin, end))]
    values = [one.at(at) / weight - other.at(at) / other_weight for at in instants]
    return max(values) - min(values)
