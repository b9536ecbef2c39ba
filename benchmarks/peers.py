"""Servers compared over HTTP: closed and open loops, a long prompt beside a stream, a neighbour's flood.

One load generator for all. They take turns at every load, round after round, and ratios are of one round: a slow spell
of the machine meets all. Any OpenAI-compatible server is measured; docs/benchmarks.md tells how others are started.
"""

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import noisy_neighbour
from http_loads import SMOKE, Asker, Figures, Sizes
from noisy_neighbour import Pair, Target
from peer_servers import Peer, Peers, parted
from report import emit, table
from stream_client import Form, StreamClient

KINDS = ("closed", "open", "long", "neighbour")
LEAST_TIMES, MOST_GAPS, MOST_TTFT = 2.0, 5.0, 1.5  # of the best other; medians of its own; of the best other
MOST_CLIENTS = 32  # where the throughput is judged
Load = Callable[[Peer, Form, int], Awaitable[Figures]]  # a round of it: the server, how it is asked, the seed


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of the table. more: the larger the better; None: no ratio is told."""

    field: str
    heading: str
    form: str
    more: bool | None = False


COLUMNS = {
    "closed": (
        Column("tokens_per_second", "tokens/s", ".0f", more=True),
        Column("ttft", "first token, s", ".3f"),
        Column("ttft_worst", "worst", ".3f"),
        Column("pace", "s a token", ".4f"),
        Column("longest_gap", "longest gap, s", ".3f"),
        Column("short", "cut short", ".0f", more=None),
    ),
    "long": (
        Column("quiet_gap", "gap before, s", ".4f"),
        Column("largest_gap", "largest beside, s", ".3f"),
        Column("gaps", "in medians", ".1f"),
        Column("ttft", "its first token, s", ".2f"),
        Column("prompt_tokens", "prompt tokens", ".0f", more=None),
    ),
    "neighbour": (
        Column("alone_ttft", "B's first token alone, s", ".3f"),
        Column("beside_ttft", "beside A, s", ".3f"),
        Column("times", "times alone", ".1f"),
        Column("tokens_per_second", "tokens/s", ".0f", more=True),
    ),
}
COLUMNS["open"] = COLUMNS["closed"]


def loads(kinds: Sequence[str], clients: Sequence[int], rates: Sequence[float], sizes: Sizes) -> dict[str, Load]:
    """All loads by name; a name begins with its kind."""
    found: dict[str, Load] = {}
    if "closed" in kinds:
        found |= {f"closed {count}": partial(asked, sizes, partial(closed, count)) for count in clients}
    if "open" in kinds:
        found |= {f"open {rate:g}/s": partial(asked, sizes, partial(opened, rate)) for rate in rates}
    if "long" in kinds:
        found["long prompt"] = partial(asked, sizes, Asker.long_prompt)
    if "neighbour" in kinds:
        found["neighbour"] = partial(neighbour, noisy_neighbour.SMOKE if sizes == SMOKE else noisy_neighbour.Load())
    return found


def closed(clients: int, asker: Asker, seed: int) -> Awaitable[Figures]:
    return asker.closed(clients, seed)


def opened(rate: float, asker: Asker, seed: int) -> Awaitable[Figures]:
    return asker.open(rate, seed)


async def asked(
    sizes: Sizes, load: Callable[[Asker, int], Awaitable[Figures]], peer: Peer, form: Form, seed: int
) -> Figures:
    async with StreamClient(peer.url, peer.keys[0]) as client:
        return await load(Asker(client, form, sizes), seed)


async def neighbour(load: noisy_neighbour.Load, peer: Peer, form: Form, seed: int) -> Figures:
    target = Target(peer.name, peer.url, peer.keys, peer.process.pid if peer.process else None)
    async with StreamClient(peer.url, peer.keys[0]) as a, StreamClient(peer.url, peer.keys[1]) as b:
        row = await Pair(target, a, b, form, load).round(seed)
    beside = statistics.median(row["ttft"])
    return {**row, "beside_ttft": round(beside, 4), "times": round(beside / row["alone_ttft"], 2)}


async def forms(peers: Sequence[Peer], sizes: Sizes) -> dict[str, Form]:
    """How each wants to be asked; a long answer warms it up."""
    found = {}
    for peer in peers:
        with peer.turn():
            async with StreamClient(peer.url, peer.keys[0]) as client:
                found[peer.name] = form = await client.form(sizes.prompt, peer.model)
                await Asker(client, form, sizes).closed(2, seed=-1)
    return found


async def measure(
    peers: Sequence[Peer], work: dict[str, Load], rounds: int, sizes: Sizes
) -> dict[str, dict[str, list[Figures]]]:
    """By load and server: a round's figures each. Who begins changes from round to round, so that drift meets all."""
    form = await forms(peers, sizes)
    told: dict[str, dict[str, list[Figures]]] = {name: {peer.name: [] for peer in peers} for name in work}
    for number in range(rounds):
        turn = number % len(peers)
        for name, load in work.items():
            for peer in (*peers[turn:], *peers[:turn]):
                with peer.turn():
                    figures = await load(peer, form[peer.name], number)
                told[name][peer.name].append(figures)
                print(f"round {number + 1}, {name}, {peer.name}: {figures}", file=sys.stderr)
    return told


def summed(name: str, told: dict[str, list[Figures]], base: str) -> dict[str, dict[str, Any]]:
    """By server: each figure's median, and how many times better `base` is at it: median, least and most of rounds."""
    found: dict[str, dict[str, Any]] = {}
    for peer, rounds in told.items():
        columns = COLUMNS[name.split()[0]]
        times = {each.field: ratios(each, told[base], rounds) for each in columns if each.more is not None}
        medians = {each.field: statistics.median(row[each.field] for row in rounds) for each in columns}
        found[peer] = {**medians, "ratios": times, "rounds": rounds}
    return found


def ratios(column: Column, ours: Sequence[Figures], theirs: Sequence[Figures]) -> list[float]:
    """Above 1: ours is better. Median, least, most; none where a figure is 0."""
    pairs = [(own[column.field], other[column.field]) for own, other in zip(ours, theirs, strict=True)]
    times = [own / other if column.more else other / own for own, other in pairs if own and other]
    return [round(pick(times), 2) for pick in (statistics.median, min, max)] if times else []


def tables(results: dict[str, dict[str, dict[str, Any]]], base: str) -> Iterator[str]:
    """One for each load. Behind a figure: how many times better the first server is, with the spread of rounds."""
    for name, rows in results.items():
        columns = COLUMNS[name.split()[0]]
        lines = [(peer, *(cell(row, each, peer == base) for each in columns)) for peer, row in rows.items()]
        yield table((name, *(each.heading for each in columns)), lines)


def cell(row: dict[str, Any], column: Column, is_base: bool) -> str:
    times = row["ratios"].get(column.field)
    spread = "" if is_base or not times else " (x{:.2f}, {:.2f} to {:.2f})".format(*times)
    return format(row[column.field], column.form) + spread


def missed(results: dict[str, dict[str, dict[str, Any]]], base: str) -> list[str]:
    """The goals that the first server misses beside the others of this run, in words."""
    said = []
    for name, rows in results.items():
        others = [row for peer, row in rows.items() if peer != base]
        if name == f"closed {MOST_CLIENTS}" and others:
            times = min(row["ratios"]["tokens_per_second"][0] for row in others)
            if times < LEAST_TIMES:
                said.append(f"{name}: {times:.2f} times the best other's tokens/s, the goal is {LEAST_TIMES}")
        if name == "long prompt":
            said += missed_beside(rows[base], others)
            said += [f"long prompt: {peer}'s stream ended too soon: raise --stream" for peer in outrun(rows)]
    return said


def missed_beside(own: dict[str, Any], others: Sequence[dict[str, Any]]) -> Iterator[str]:
    if own["gaps"] > MOST_GAPS:
        yield f"long prompt: the largest gap is {own['gaps']:.1f} medians, the goal is {MOST_GAPS}"
    best = min((row["ttft"] for row in others), default=own["ttft"])
    if own["ttft"] > MOST_TTFT * best:
        yield f"long prompt: its first token takes {own['ttft'] / best:.2f} times the best other's, most {MOST_TTFT}"


def outrun(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Whose stream ended before the long prompt had its first token, in any round: its gap says little."""
    return [peer for peer, row in rows.items() if not all(figures["outlived"] for figures in row["rounds"])]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add(
        "--own",
        action="append",
        default=[],
        metavar="NAME=OPTIONS",
        help="start `fairstep serve` (default: fairstep=)",
    )
    add("--start", action="append", default=[], metavar="NAME=COMMAND", help="start another; {port} becomes its port")
    add("--server", action="append", default=[], metavar="NAME=URL[,MODEL[,KEY_A,KEY_B]]", help="one that runs")
    add("--asks", action="append", default=[], metavar="NAME=MODEL", help="for a model of one that lists none")
    add("--base", help="the server that others are compared with (default: the first)")
    add("--version", action="append", default=[], metavar="NAME=TEXT", help="of one that doesn't tell it")
    add("--model", default="smollm2", help="what --own serves (default: %(default)s)")
    add("--loads", nargs="+", choices=KINDS, default=KINDS, help="(default: all)")
    add("--clients", nargs="+", type=int, default=[1, 8, MOST_CLIENTS], help="of the closed loop (default: 1 8 32)")
    add("--rates", nargs="+", type=float, default=[2.0, 4.0, 8.0], help="of the open loop, a second (default: 2 4 8)")
    add("--rounds", type=int, default=5, help="rounds at each server (default: %(default)s)")
    for name, value in asdict(Sizes()).items():
        add(f"--{name.replace('_', '-')}", type=int, default=value, help="(default: %(default)s)")
    add("--smoke", action="store_true", help="one short round: does it work at all")
    return parser.parse_args()


def begin(args: argparse.Namespace, peers: Peers) -> None:
    """One after another, so that start-up times are told as of a quiet machine."""
    peers.models = dict(map(parted, args.asks))
    for named in args.own or ([] if args.server else ["fairstep="]):
        peers.start_own(named, args.model)
    for named in args.server:
        peers.find(named)
    for named in args.start:
        peers.start(named)


def main() -> None:
    """Run, print a table for each load, end in one JSON line."""
    args = arguments()
    if args.smoke:
        args.rounds, args.clients, args.rates = 1, [2], [20.0]
    sizes = SMOKE if args.smoke else Sizes(**{name: getattr(args, name) for name in asdict(Sizes())})
    busy_before = os.getloadavg()[0]
    with TemporaryDirectory() as folder, Peers(Path(folder)) as started:
        begin(args, started)
        peers = [*started]
        base = args.base or peers[0].name
        if base not in {peer.name for peer in peers}:
            raise SystemExit(f"--base {base} names none of them")
        work = loads(args.loads, args.clients, args.rates, sizes)
        told = asyncio.run(measure(peers, work, args.rounds, sizes))
    results = {name: summed(name, each, base) for name, each in told.items()}
    print("\n\n".join(tables(results, base)))
    misses = [] if args.smoke else missed(results, base)
    for said in misses:
        print(f"missed: {said}")
    named = dict(map(parted, args.version))
    servers = {peer.name: {"version": named.get(peer.name, peer.version), "started": peer.started} for peer in peers}
    about = {
        "smoke": args.smoke,
        "base": base,
        "options": args.own,
        "sizes": asdict(sizes),
        "servers": servers,
        "load_before": busy_before,
    }
    emit("peers", {**about, "loads": results, "missed": misses})


if __name__ == "__main__":
    main()
