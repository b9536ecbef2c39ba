"""The options of `fairstep bench`, in the help's order."""

from pathlib import Path

import click

from ..benchmarking.mixes import MIXES
from ..config import DTYPES
from .options import Command

FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
ABOVE_ZERO = click.FloatRange(min=0, min_open=True)

OPTIONS = (
    click.option("--virtual", is_flag=True, help="In virtual time, steps as on a large GPU: no model, seconds."),
    click.option("--full", is_flag=True, help="All mixes, at seven loads and an overload."),
    click.option("--smoke", is_flag=True, help="A few short requests: does it work at all."),
    click.option(
        "--mix",
        "mixes",
        type=click.Choice(list(MIXES)),
        multiple=True,
        metavar="NAME",
        help=f"Traffic, may be given often: {', '.join(MIXES)}  [default: chat]",
    ),
    click.option("--trace", type=FILE, metavar="FILE", help="Instead of a mix: a trace in CSV, as for simulate."),
    click.option("--poisson", is_flag=True, help="Poisson arrivals instead of the trace's."),
    click.option(
        "--load",
        "loads",
        type=ABOVE_ZERO,
        multiple=True,
        metavar="N",
        help="Times what naive static serves, may be given often; an overload comes last  [default: 0.3, 0.8]",
    ),
    click.option("--requests", type=COUNT, metavar="N", help="Requests of a run  [default: 128; virtual: 200]"),
    click.option(
        "--shorter", type=ABOVE_ZERO, metavar="N", help="Divide lengths by N  [default: the mix's; virtual: 1]"
    ),
    click.option(
        "--seats", type=COUNT, metavar="N", help="Most sequences running, a full batch  [default: 16; virtual: 32]"
    ),
    click.option("--seed", type=int, default=0, metavar="N", help="Another one, other requests  [default: 0]"),
    click.option("--witness/--no-witness", default=True, help="Run transformers' own generate too  [default: run]"),
    click.option(
        "--ttft-limit", type=ABOVE_ZERO, default=1.0, metavar="S", help="A good answer's first token  [default: 1 s]"
    ),
    click.option(
        "--pace-limit", type=ABOVE_ZERO, default=0.1, metavar="S", help="Its mean gap between tokens  [default: 0.1 s]"
    ),
    click.option("--dtype", type=click.Choice(DTYPES), default="auto", metavar="NAME", help="As for serve."),
    click.option("--threads", type=COUNT, metavar="N", help="Compute threads  [default: the cores found]"),
    click.option("--plot", type=FILE, metavar="FILE", help="Draw latency by load and seats by time; needs matplotlib."),
)


def bench_options(command: Command) -> Command:
    """A decorator that adds them all, as fields of bench_command.Job and `plot`."""
    for add in reversed(OPTIONS):
        command = add(command)
    return command
