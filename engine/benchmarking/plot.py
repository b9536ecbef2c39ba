"""The comparison as a picture: latency against load, and seats over time. matplotlib is imported only here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .comparison import Run
from .rules import CONTINUOUS, NAIVE, RULES

COLOURS = dict(zip(RULES, ("tab:red", "tab:orange", "tab:blue"), strict=True))


def plot_comparison(runs: Sequence[Run], path: Path, title: str) -> None:
    """Draw two rows a mix into a file, whose name's ending says the format. Raises ConfigError."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'fairstep[plot]'") from None
    mixes = list(dict.fromkeys(run.mix for run in runs))
    figure = Figure(figsize=(11, 7 * len(mixes)), layout="constrained")
    figure.suptitle(title)
    rows = figure.subplots(2 * len(mixes), 2, squeeze=False)
    for place, mix in enumerate(mixes):
        own = [run for run in runs if run.mix == mix and run.load is not None]
        _latencies(rows[2 * place], own)
        _seats(rows[2 * place + 1], own)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as problem:
        raise ConfigError(f"--plot {path}: {problem}") from None


def _latencies(axes: Sequence[Any], runs: Sequence[Run]) -> None:
    """Median and p99, to the first token and to the last."""
    for ax, what in zip(axes, ("ttft", "e2e"), strict=True):
        for rule, colour in COLOURS.items():
            own = [run for run in runs if run.rule == rule]
            loads = [run.load for run in own]
            for part, style in (("p50", "o:"), ("p99", "o-")):
                values = [getattr(getattr(run.figures, what), part) for run in own]
                ax.plot(loads, values, style, color=colour, label=f"{rule}, {part}")
        name = "first" if what == "ttft" else "last"
        ax.set(xscale="log", yscale="log", xlabel="load, of naive static's saturation", ylabel="seconds")
        ax.set_xticks(loads, [f"{load:g}" for load in loads])
        ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        ax.set_title(f"{runs[0].mix}: arrival to {name} token")
    axes[0].legend(fontsize="small")


def _seats(axes: Sequence[Any], runs: Sequence[Run]) -> None:
    """Under overload: seats held, and above them those computed for nothing."""
    shown = [run for rule in (NAIVE, CONTINUOUS) for run in runs if run.overload and run.rule == rule]
    end = max(run.course.ended_at for run in shown)
    for ax, run in zip(axes, shown, strict=True):
        beats, seats = run.course.beats, run.course.seats
        times = [beat.ended for beat in beats]
        held = [beat.held for beat in beats]
        padded = [min(seats, beat.held + beat.padding) for beat in beats]
        ax.fill_between(times, padded, step="pre", color="lightgray", label="padding")
        ax.fill_between(times, held, step="pre", color=COLOURS[run.rule], label="a request's")
        ax.axvline(run.course.last_arrival, color="black", linestyle=":", label="last arrival")
        ax.set(xlim=(0, end), ylim=(0, seats), xlabel="seconds", ylabel="seats")
        ax.set_title(f"{run.mix}: {run.rule} at load {run.load:g}")
    axes[1].legend(fontsize="small", loc="upper right")
