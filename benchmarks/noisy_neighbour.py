"""What a flood does to its neighbour: A posts 100 requests at once, then B five, a second apart, from a real server.

By default two servers of ours, one under drr and one under first come first served, take turns. Any OpenAI-compatible
server is measured by --url. First the same in virtual time (the suite noisy_neighbour, whose machine is modelled).
"""

import argparse
import asyncio
import os
import secrets
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from fairstep.fairness.policies import Policy, make_room
from fairstep.simulation.simulator import Setup, simulate
from fairstep.simulation.suites import suite_trace
from fairstep.simulation.summary import Summary, summarize
from fairstep.simulation.trace import Trace
from fairstep.tenants import digest_of
from process_tree import tree_cpu
from report import emit, table
from server_process import serving
from stream_client import Answer, Form, StreamClient

HEADING = ("B's first token, seconds", "alone", "beside A", "worst", "times alone", "worst", "A's and B's tokens/s")
MOST_TIMES, MOST_TIMES_MODELLED = 10, 3  # times alone; modelled, and two steps
LEAST_PART, LEAST_PART_MODELLED = 0.9, 0.97  # of first come first served's tokens/s


@dataclass(frozen=True, slots=True)
class Load:
    """The flood and its neighbour. prompt, answer: tokens. apart: seconds between B's requests, the first as well."""

    flood: int = 100
    few: int = 5
    prompt: int = 128
    answer: int = 64
    apart: float = 1.0


SMOKE = Load(flood=6, few=2, prompt=16, answer=4, apart=0.1)


@dataclass(frozen=True, slots=True)
class Target:
    """A server as it is measured. keys: A's and B's, "" where it needs none. pid: its process, if it is ours."""

    name: str
    url: str
    keys: tuple[str, str] = ("", "")
    pid: int | None = None

    def computed(self) -> float:
        """Seconds of processor time so far; 0 for another's server."""
        return 0.0 if self.pid is None else tree_cpu(self.pid)


class Pair:
    """A and B at one server."""

    def __init__(self, target: Target, a: StreamClient, b: StreamClient, form: Form, load: Load) -> None:
        self._target, self._a, self._b, self._form, self._load = target, a, b, form, load

    async def round(self, seed: int) -> dict[str, Any]:
        """B alone, then B beside A; figures in seconds."""
        random = Random(seed)
        alone = await self._few(random)
        before = self._target.computed()
        flood, beside = await asyncio.gather(self._flood(random), self._few(random))
        computed = round(self._target.computed() - before, 2)
        return {**figures(alone, flood, beside), "computed": computed, "short": self._short([*alone, *flood, *beside])}

    async def _few(self, random: Random) -> list[Answer]:
        """B's requests, each at its instant, whether or not the one before has ended."""

        async def later(place: int) -> Answer:
            body = self._form.body(self._load.prompt, self._load.answer, random)
            await asyncio.sleep(place * self._load.apart)
            return await self._b.ask(body)

        return await asyncio.gather(*(later(place + 1) for place in range(self._load.few)))

    async def _flood(self, random: Random) -> list[Answer]:
        bodies = [self._form.body(self._load.prompt, self._load.answer, random) for _ in range(self._load.flood)]
        return await asyncio.gather(*map(self._a.ask, bodies))

    def _short(self, answers: Sequence[Answer]) -> int:
        """Answers of fewer tokens than were asked for."""
        return sum(len(answer.tokens) < self._load.answer for answer in answers)


def figures(alone: Sequence[Answer], flood: Sequence[Answer], beside: Sequence[Answer]) -> dict[str, Any]:
    """One round beside A. tokens_per_second: of all answers, from A's first request to the last token."""
    both = [*flood, *beside]
    seconds = max(answer.ended for answer in both) - min(answer.asked for answer in both)
    return {
        "alone_ttft": median(answer.ttft for answer in alone),
        "ttft": [round(answer.ttft, 4) for answer in beside],
        "flood_ttft": median(answer.ttft for answer in flood),
        "alone_itl": median(gap for answer in alone for gap in answer.gaps),
        "itl": median(gap for answer in beside for gap in answer.gaps),
        "longest_gap": round(max((gap for answer in beside for gap in answer.gaps), default=0.0), 4),
        "flood_itl": median(gap for answer in flood for gap in answer.gaps),
        "tokens_per_second": round(sum(len(answer.tokens) for answer in both) / seconds, 1),
        "prompt_tokens": statistics.fmean(answer.prompt_tokens for answer in both),
    }


def median(values: Iterator[float]) -> float:
    """Of seconds, to a tenth of a millisecond; 0 of none."""
    return round(statistics.median([*values] or [0.0]), 4)


def summed(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What rounds come to: medians, with the least and the most of the two ratios that are judged."""
    alone = statistics.median(each["alone_ttft"] for each in rounds)
    times = [statistics.median(each["ttft"]) / each["alone_ttft"] for each in rounds]
    return {
        "alone": alone,
        "beside": statistics.median(ttft for each in rounds for ttft in each["ttft"]),
        "worst": max(ttft for each in rounds for ttft in each["ttft"]),
        "times": round(statistics.median(times), 2),
        "times_spread": [round(min(times), 2), round(max(times), 2)],
        "worst_times": round(max(max(each["ttft"]) / each["alone_ttft"] for each in rounds), 2),
        "tokens_per_second": statistics.median(each["tokens_per_second"] for each in rounds),
        "tokens_per_second_spread": [pick(each["tokens_per_second"] for each in rounds) for pick in (min, max)],
        "computed": statistics.median(each["computed"] for each in rounds),
        "itl": {key: statistics.median(each[key] for each in rounds) for key in ("alone_itl", "itl", "flood_itl")},
        "rounds": list(rounds),
    }


async def measure(targets: Sequence[Target], load: Load, rounds: int, model: str | None) -> dict[str, dict[str, Any]]:
    """Every target, taking turns; the order turns round from round to round, so that drift hits all."""
    told: dict[str, list[dict[str, Any]]] = {target.name: [] for target in targets}
    for number in range(rounds):
        for target in targets if number % 2 == 0 else reversed(targets):
            async with StreamClient(target.url, target.keys[0]) as a, StreamClient(target.url, target.keys[1]) as b:
                form = await b.form(load.prompt, model)
                row = await Pair(target, a, b, form, load).round(seed=number)
            told[target.name].append(row)
            print(f"round {number + 1} at {target.name}: {row}", file=sys.stderr)
    return {name: summed(each) for name, each in told.items()}


@contextmanager
def own_servers(model: str) -> Iterator[list[Target]]:
    """One under drr and one under first come first served, with a tenants file of A and B."""
    keys = secrets.token_urlsafe(), secrets.token_urlsafe()
    named = zip("AB", keys, strict=True)
    tables = [f'[[tenants]]\nname = "{name}"\nkeys = ["{digest_of(key)}"]\n' for name, key in named]
    with TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "tenants.toml"
        file.write_text("\n".join(tables), encoding="utf-8")
        started = {
            policy: stack.enter_context(serving(model, "--tenants", str(file), "--fairness", policy))
            for policy in ("drr", "fcfs")
        }
        for server in started.values():
            server.wait_healthy()
        yield [Target(policy, server.url, keys, server.pid) for policy, server in started.items()]


def modelled() -> dict[str, Any]:
    """The same in virtual time: B alone, beside A under drr, and under first come first served."""
    trace = suite_trace("noisy_neighbour", 0)
    own = tuple(each for each in trace.arrivals if each.tenant == "B")
    lone = _simulated(Trace.of(trace.name, own, trace.until), "drr")
    ours, plain = _simulated(trace, "drr"), _simulated(trace, "fcfs")
    return {
        "alone": lone.tenants["B"].ttft.p99,
        "drr": ours.tenants["B"].ttft.p99,
        "drr_median": ours.tenants["B"].ttft.p50,
        "fcfs": plain.tenants["B"].ttft.p99,
        "fcfs_median": plain.tenants["B"].ttft.p50,
        "step": round(ours.seconds * ours.busy / ours.steps, 4),
        "tokens_per_second": {"drr": round(ours.tokens_per_second, 1), "fcfs": round(plain.tokens_per_second, 1)},
    }


def _simulated(trace: Trace, policy: Policy) -> Summary:
    return summarize(simulate(trace, make_room(policy), Setup(shared=policy == "drr")))


def missed(model: dict[str, Any], measured: dict[str, dict[str, Any]]) -> list[str]:
    """The goals that are missed, in words. Of another's server only its B is judged."""
    said = []
    most = MOST_TIMES_MODELLED * model["alone"] + 2 * model["step"]
    if model["drr"] > most:
        said.append(f"modelled: B's first token takes {model['drr']:.3f} s, the goal is {most:.3f} s")
    part = model["tokens_per_second"]["drr"] / model["tokens_per_second"]["fcfs"]
    if part < LEAST_PART_MODELLED:
        said.append(f"modelled: {part:.1%} of fcfs's tokens/s")
    for name, row in measured.items():
        if name != "fcfs" and row["times"] > MOST_TIMES:
            said.append(f"{name}: B's first token takes {row['times']:.1f} times as long as alone")
    if {"drr", "fcfs"} <= measured.keys():
        part = measured["drr"]["tokens_per_second"] / measured["fcfs"]["tokens_per_second"]
        if part < LEAST_PART:
            said.append(f"measured: {part:.1%} of fcfs's tokens/s")
    return said


def lines_of(model: dict[str, Any], measured: dict[str, dict[str, Any]]) -> Iterator[Sequence[str]]:
    """The table's rows."""
    for name in ("drr", "fcfs"):
        median_of, worst, alone = model[f"{name}_median"], model[name], model["alone"]
        speed = model["tokens_per_second"][name]
        yield _line(f"{name}, modelled", alone, median_of, worst, median_of / alone, worst / alone, speed)
    for name, row in measured.items():
        times = row["times"], row["worst_times"]
        yield _line(name, row["alone"], row["beside"], row["worst"], *times, row["tokens_per_second"])


def _line(name: str, *values: float) -> Sequence[str]:
    forms = (".3f", ".3f", ".3f", ".1f", ".1f", ".0f")
    return [name, *(format(value, form) for value, form in zip(values, forms, strict=True))]


def main() -> None:
    """Run, print a table, end in one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="model to serve (default smollm2), or to ask --url for (default: its first)")
    parser.add_argument("--url", help="a server to measure instead of ours, without /v1")
    parser.add_argument("--name", default="server", help="what the table calls it (default: %(default)s)")
    parser.add_argument("--keys", nargs=2, default=("", ""), metavar=("A", "B"), help="API keys of A and B")
    parser.add_argument("--rounds", type=int, default=3, help="rounds at each server (default: %(default)s)")
    parser.add_argument("--modelled", action="store_true", help="only in virtual time")
    parser.add_argument("--smoke", action="store_true", help="one round of a few short requests: does it work at all")
    asked = parser.parse_args()
    load, rounds = (SMOKE, 1) if asked.smoke else (Load(), asked.rounds)
    busy_before = os.getloadavg()[0]
    model = modelled()
    measured: dict[str, dict[str, Any]] = {}
    if asked.url:
        target = Target(asked.name, asked.url, tuple(asked.keys))
        measured = asyncio.run(measure([target], load, rounds, asked.model))
    elif not asked.modelled:
        with own_servers(asked.model or "smollm2") as targets:
            measured = asyncio.run(measure(targets, load, rounds, None))
    print(table(HEADING, lines_of(model, measured)))
    misses = [] if asked.smoke else missed(model, measured)
    for said in misses:
        print(f"missed: {said}")
    figures = {"modelled": model, "measured": measured, "load_before": busy_before, "missed": misses}
    emit("noisy_neighbour", {"smoke": asked.smoke, **figures})


if __name__ == "__main__":
    main()
