"""A picture of a simulation: each tenant's service as it adds up, and its rate. matplotlib is imported only here."""

from pathlib import Path

from ..errors import ConfigError
from .logbook import Curve, Logbook
from .measures import weights_of

POINTS = 400
WINDOW = 30.0  # seconds over which a rate is taken, at most a tenth of the run
MOST_LINES = 12  # tenants drawn: those with most service


def plot_service(log: Logbook, path: Path, title: str) -> None:
    """Draw service over time into a file, whose name's ending says the format. Raises ConfigError."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'fairstep[plot]'") from None
    figure = Figure(figsize=(9, 7), layout="constrained")
    sums, rates = figure.subplots(2, 1, sharex=True)
    instants = [log.ended_at * point / POINTS for point in range(POINTS + 1)]
    weights = weights_of(log)
    for name in sorted(log.books, key=lambda name: -log.books[name].service.total)[:MOST_LINES]:
        curve, weight = log.books[name].service, weights[name]
        label = name if weight == 1 else f"{name} (weight {weight})"
        sums.plot(instants, [curve.at(instant) / weight for instant in instants], label=label)
        rates.plot(instants, [_rate(curve, instant, log.ended_at) / weight for instant in instants])
    sums.set(ylabel="service, tokens by weight", title=title)
    rates.set(xlabel="seconds", ylabel="service a second")
    sums.legend(loc="upper left")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as problem:
        raise ConfigError(f"--plot {path}: {problem}") from None


def _rate(curve: Curve, instant: float, end: float) -> float:
    """Service a second around an instant."""
    half = min(WINDOW, end / 10) / 2
    begin, end = max(0.0, instant - half), min(end, instant + half)
    return curve.between(begin, end) / (end - begin) if end > begin else 0.0
