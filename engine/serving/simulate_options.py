"""The options of `fairstep simulate`, in the help's order."""

from functools import partial
from pathlib import Path

import click

from .options import Command, SectionOption

LEARN = "learn"
FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
ABOVE_ZERO = click.FloatRange(min=0, min_open=True)

option = partial(click.option, cls=SectionOption)

TRAFFIC = (
    option("--suite", metavar="NAME", help="A made-up trace; --list shows them."),
    option("--trace", type=FILE, metavar="FILE", help="A trace in CSV, see below."),
    option("--list", is_flag=True, help="List the suites and end."),
    option("--seconds", type=ABOVE_ZERO, metavar="N", help="End after N virtual seconds  [default: the trace's]"),
    option("--tenants", type=FILE, metavar="FILE", help="Tenants' tiers, weights and limits, in TOML as for serve."),
    option("--requests", type=COUNT, metavar="N", help="Only the first N requests of FILE."),
    option("--rate", type=ABOVE_ZERO, metavar="N", help="Poisson arrivals, N a second, instead of FILE's."),
    option("--shorter", type=ABOVE_ZERO, default=1.0, metavar="N", help="Divide lengths by N."),
    option("--faster", type=ABOVE_ZERO, default=1.0, metavar="N", help="Divide instants of arrival by N."),
    option("--seed", type=int, default=0, metavar="N", help="The same seed gives the same numbers  [default: 0]"),
    option("--json", is_flag=True, help="Print JSON, with all tenants and what was asked."),
    option("--plot", type=FILE, metavar="FILE", help="Draw service over time; needs matplotlib."),
)
MACHINE = (
    option("--policy", default="drr", metavar="NAME", help="fcfs, vtc, vtc-ema or drr  [default: drr]"),
    option("--cost-model", default="tokens", metavar="NAME", help="tokens, requests or adaptive  [default: tokens]"),
    option("--quantum", type=COUNT, metavar="N", help="Tokens, or requests, a turn of drr  [default: 500, 1]"),
    option("--max-seats", type=COUNT, default=32, metavar="N", help="Most sequences running  [default: 32]"),
    option("--step-tokens", type=COUNT, default=512, metavar="N", help="Most tokens a step  [default: 512]"),
    option("--kv-tokens", type=COUNT, default=10_000, metavar="N", help="Tokens in KV memory  [default: 10000]"),
    option("--prefix-cache/--no-prefix-cache", default=None, help="Find prompts again  [default: if the trace shares]"),
    option(
        "--step-cost",
        metavar="MS,MS,MS,MS",
        help="What a step takes by itself, for a prompt token, for a sequence and for a token attended to  "
        "[default: 20,0.22,0.3,0.0003]",
    ),
    option(
        "--noise", type=click.FloatRange(0, 2), default=0.0, metavar="N", help="Spread of the times; 0.1 is a tenth."
    ),
    option(
        "--believed",
        default="1",
        metavar=f"N|{LEARN}",
        help="Times that the scheduler reckons with, as a multiple of the true ones, or it learns them  [default: 1]",
    ),
    option("--max-queue", type=COUNT, metavar="N", help="Most requests that wait  [default: the suite's, or no end]"),
    option("--max-queue-tokens", type=COUNT, metavar="N", help="The same in prompt tokens."),
    option("--max-queue-bytes", type=COUNT, metavar="N", help="The same in bytes, four a prompt token."),
    option(
        "--refuse/--no-refuse",
        default=True,
        help="Refuse on arrival what should not meet its deadline, or let it wait until it expires  [default: refuse]",
    ),
    option("--batch", metavar="N,MS,MS", help="Static batches: size, longest wait by choice, time of a batch."),
)


def simulate_options(command: Command) -> Command:
    """A decorator that adds them all, each by its long name with _ for -."""
    for section, options in (("Engine options", MACHINE), ("Options", TRAFFIC)):
        for add in reversed(options):
            command = add(command)
            added: SectionOption = command.__click_params__[-1]  # type: ignore[attr-defined]
            added.section = section
    return command
