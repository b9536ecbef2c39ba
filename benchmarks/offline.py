"""Engines compared without HTTP, through Python or their own programs: decodes at 1, 8 and 32, prompts, start-up.

Engines take turns at every cell of every round; in the first rounds each is started anew. Ratios are of one round, and
what the machine can do is measured in the same run. docs/benchmarks.md tells how others are installed.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cpu_step  # before torch
from fairstep.kernels.cpu.build import built, usable_levels
from fairstep.kernels.cpu.library import Library
from fairstep.machine import Machine, cpu_flags
from fairstep.model.loading import read_spec
from fairstep.model.sources import resolve
from offline_engines import Engine, llama, own, vllm
from report import emit, table

# Inter-token targets are for those who watch a stream: here, as elsewhere, prompts come first.
OWN = {"dtype": "bfloat16", "prefix_cache": False, "inter_token_target_ms": 1e6}
GOALS = {  # decode at 1, 8 and 32, prefill: tokens a second; start-up: seconds
    "bf16": (100.0, 600.0, 1000.0, 1600.0, 5.0),
    "int8": (190.0, 900.0, 1250.0, 2000.0, 5.0),
    "int4": (300.0, 1000.0, 1250.0, 1900.0, 5.0),
}
NEAR = {("bf16", "decode 1"): 0.95}  # of the best other; elsewhere all of it
Rounds = list[dict[str, float]]  # by column


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of prompts and answers; counts: prompts at once."""

    prompt: int = 128
    answer: int = 64
    counts: tuple[int, ...] = (1, 8, 32)

    @property
    def columns(self) -> list[str]:
        return [*(f"decode {count}" for count in self.counts), "prefill", "start-up"]


SMOKE = Sizes(prompt=16, answer=6, counts=(1, 2))


def measure(engines: Sequence[Engine], rounds: int, starts: int, sizes: Sizes) -> dict[str, Rounds]:
    """By engine: each round's figures. In the first `starts` rounds each is started anew."""
    told: dict[str, Rounds] = {engine.name: [] for engine in engines}
    running: list[Engine] = []
    try:
        for number in range(rounds):
            turn = number % len(engines)
            order = [*engines[turn:], *engines[:turn]]
            row: dict[str, dict[str, float]] = {engine.name: {} for engine in order}
            if number < starts:
                stop(running)
                for engine in order:
                    row[engine.name]["start-up"] = engine.start()
                    running.append(engine)
            play(order, number, sizes, row)
            for name, figures in row.items():
                told[name].append({column: round(value, 2) for column, value in figures.items()})
                print(f"round {number + 1}, {name}: {told[name][-1]}", file=sys.stderr)
    finally:
        stop(running)
    return told


def stop(running: list[Engine]) -> None:
    while running:
        running.pop().stop()


def play(order: Sequence[Engine], number: int, sizes: Sizes, row: dict[str, dict[str, float]]) -> None:
    """One round: all engines at each cell, one after another."""
    for count in sizes.counts:
        for engine in order:
            row[engine.name] |= decode(engine, count, sizes, number)
    for engine in order:
        row[engine.name]["prefill"] = engine.play(max(sizes.counts), sizes.prompt, 1, number).prefill


def decode(engine: Engine, count: int, sizes: Sizes, seed: int) -> dict[str, float]:
    played = engine.play(count, sizes.prompt, sizes.answer, seed)
    return {f"decode {count}": played.decode, f"whole {count}": played.whole}


def medians(rounds: Rounds) -> dict[str, float]:
    return {column: round(statistics.median(row[column] for row in rounds if column in row), 2) for column in rounds[0]}


def ratios(ours: Rounds, theirs: Rounds, columns: Sequence[str]) -> dict[str, list[float]]:
    """Above 1: ours is better. Median, least and most of rounds."""
    found = {}
    for column in columns:
        pairs = [(own.get(column), other.get(column)) for own, other in zip(ours, theirs, strict=True)]
        times = [other / own if column == "start-up" else own / other for own, other in pairs if own and other]
        found[column] = [round(pick(times), 2) for pick in (statistics.median, min, max)] if times else []
    return found


def machine_limits(model: str, sizes: Sizes) -> dict[str, Any]:
    """Read bandwidth, peak of products, and what they allow a bfloat16 step; {} where the C++ step can't be built."""
    levels = usable_levels(cpu_flags())
    if not levels:
        return {}
    spec, threads = read_spec(resolve(model)), Machine.found().cores
    bandwidth, peak = cpu_step.limits(Library(levels[0], built(levels[0])), threads, 5)

    def most(tokens: int, rows: int) -> float:
        gigabytes, gigaflops = cpu_step.work_of(spec, tokens, rows)
        return round(tokens / max(gigabytes / bandwidth, gigaflops / peak), 1)

    allowed = {f"decode {count}": most(count, count) for count in sizes.counts}
    most_prompts = max(sizes.counts)
    allowed["prefill"] = most(most_prompts * sizes.prompt, most_prompts)
    return {"read_gb_s": round(bandwidth, 1), "peak_gf_s": round(peak), "bf16_allowed": allowed}


def missed(engines: Sequence[Engine], told: dict[str, dict[str, float]], columns: Sequence[str]) -> Iterator[str]:
    """Goals that ours miss, and columns in which another of their precision is ahead. Ours: called fairstep."""
    for engine in engines:
        if not engine.name.startswith("fairstep"):
            continue
        own_row = told[engine.name]
        rivals = [
            each for each in engines if each.precision == engine.precision and not each.name.startswith("fairstep")
        ]
        for column, goal in zip(columns, GOALS.get(engine.precision, ()), strict=False):
            if own_row[column] > goal if column == "start-up" else own_row[column] < goal:
                yield f"{engine.name}: {column} {own_row[column]:.0f}, the goal is {goal:.0f}"
        for column in columns[:-1]:
            best = max((told[each.name][column] for each in rivals), default=0.0)
            if own_row[column] < NEAR.get((engine.precision, column), 1.0) * best:
                yield f"{engine.name}: {column} {own_row[column]:.0f}, the best other has {best:.0f}"


def lines_of(told: dict[str, dict[str, float]], limits: dict[str, Any], columns: Sequence[str]) -> Iterator[list[str]]:
    """The table's rows; last: what the machine allows bfloat16."""
    for name, row in told.items():
        yield [name, *(f"{row[column]:.0f}" for column in columns[:-1]), f"{row['start-up']:.1f}"]
    if limits:
        yield ["the machine, bf16", *(f"{limits['bf16_allowed'][column]:.0f}" for column in columns[:-1]), ""]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    plain = f"fairstep:bf16={json.dumps(OWN)}"
    add("--own", action="append", default=[], metavar="NAME:PRECISION=OPTIONS", help=f"(default: {plain})")
    add("--vllm", action="append", default=[], metavar="NAME:PRECISION=PYTHON MODEL OPTIONS", help=vllm.__doc__)
    add("--llama", action="append", default=[], metavar="NAME:PRECISION=COMMAND", help=llama.__doc__)
    add("--model", default="smollm2", help="what --own computes (default: %(default)s)")
    add("--rounds", type=int, default=5, help="(default: %(default)s)")
    add("--starts", type=int, default=2, help="rounds in which each is started anew (default: %(default)s)")
    add("--smoke", action="store_true", help="one short round: does it work at all")
    args = parser.parse_args()
    args.own = args.own or [plain]
    return args


def main() -> None:
    """Run, print a table, end in one JSON line."""
    args = arguments()
    sizes, rounds = (SMOKE, 1) if args.smoke else (Sizes(), args.rounds)
    engines = [*(own(each, args.model) for each in args.own), *map(vllm, args.vllm), *map(llama, args.llama)]
    busy_before = os.getloadavg()[0]
    limits = machine_limits(args.model, sizes)
    told = measure(engines, rounds, args.starts, sizes)
    first, columns = engines[0].name, sizes.columns
    summed = {name: medians(rows) for name, rows in told.items()}
    print(table(("tokens/s; start-up in s", *columns), lines_of(summed, limits, columns)))
    results = {
        engine.name: {
            "version": engine.version,
            "medians": summed[engine.name],
            "ratios": ratios(told[first], told[engine.name], columns),
            "rounds": told[engine.name],
        }
        for engine in engines
    }
    misses = [] if args.smoke else [*missed(engines, summed, columns)]
    for said in misses:
        print(f"missed: {said}")
    about = {"smoke": args.smoke, "base": first, "options": args.own, "machine": limits, "load_before": busy_before}
    emit("offline", {**about, "engines": results, "missed": misses})


if __name__ == "__main__":
    main()
