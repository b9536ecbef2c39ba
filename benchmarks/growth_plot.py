"""Cost growth as a picture, a panel for each thing that a cost depends on. matplotlib is imported only here."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from growth_curve import Curve


def plot_growth(panels: Mapping[str, Sequence[Curve]], path: Path, title: str) -> None:
    """Draw into a file, whose name's ending says the format. Panels by their title; ends the benchmark if it can't."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install 'fairstep[plot]'") from None
    figure = Figure(figsize=(5 * len(panels), 4.5), layout="constrained")
    figure.suptitle(title)
    [row] = figure.subplots(1, len(panels), squeeze=False)
    for ax, (name, curves) in zip(row, panels.items(), strict=True):
        wide = max(curves[0].points) > 1000 * max(1, min(curves[0].points))
        unit, unit_name = (1e6, "µs") if wide else (1e3, "ms")
        for curve in curves:
            values = [unit * seconds for seconds in curve.points.values()]
            ax.plot([*curve.points], values, "o-", label=curve.name)
        if wide:
            ax.set_xscale("symlog", linthresh=1)
        ax.set(xlabel=curves[0].over, ylabel=unit_name, title=name)
        ax.set_ylim(bottom=0)
        ax.legend(fontsize="small")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as problem:
        raise SystemExit(f"--plot {path}: {problem}") from None
