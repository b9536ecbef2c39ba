"""How fairly each policy shares, in virtual time: VTC's synthetic suites and ours through the real front and step loop.

Most time: the part of the steps' time that the tenant with most of it had; `adaptive` is there to make that even.
Lengths and rates are the suites' own (`fairstep simulate --list`); the machine is the simulator's. Lower difference and
TTFT are better. A line a suite and policy, then which goals are missed; nothing here depends on the machine it runs on.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairstep.fairness.policies import QUANTUM_TOKENS, Policy, make_room
from fairstep.fairness.pricing import CostKind, CostModel
from fairstep.front_setup import least_of
from fairstep.simulation.measures import WINDOW
from fairstep.simulation.simulator import SETTINGS, Setup, simulate
from fairstep.simulation.suites import SHARING, SUITES, suite_trace
from fairstep.simulation.summary import Summary, summarize
from fairstep.simulation.trace import Trace
from report import emit, table

HEADING = (
    *("suite", "policy", "difference /s", "worst gap", "most time", "tokens/s", "light p99 TTFT s", "alone s"),
    "computed again",
)
UNIFORM = ("overload", "overload_multi", "proportional", "increase", "on_off_less", "on_off_overload", "dist_shift")
BURST = 10.0  # seconds over which the light tenant may not ask for more than its share, if the goal is to hold
LONGEST = 16_384  # tokens of context: the suites' longest request


@dataclass(frozen=True, slots=True)
class Entrant:
    """A policy as it is compared. shared: with share caps and yields."""

    policy: Policy
    kind: CostKind = "tokens"
    shared: bool = False


ENTRANTS = {
    "fcfs": Entrant("fcfs"),
    "vtc": Entrant("vtc"),
    "vtc-ema": Entrant("vtc-ema"),
    "drr-requests": Entrant("drr", "requests", shared=True),
    "drr-tokens": Entrant("drr", "tokens", shared=True),
    "drr-adaptive": Entrant("drr", "adaptive", shared=True),
    "drr-tokens without shares": Entrant("drr", "tokens"),
}


def run(trace: Trace, entrant: Entrant) -> Summary:
    """One suite under one policy."""
    # as the engine is by default; what yields or is preempted finds a part of its pages again
    settings = replace(SETTINGS, context=LONGEST, prefix_cache=True)
    room = make_room(entrant.policy, CostModel(kind=entrant.kind), least=least_of(trace.book.tiers))
    setup = Setup(settings=settings, shared=entrant.shared, bounds=SUITES[trace.name].bounds)
    return summarize(simulate(trace, room, setup))


def light_tenant(trace: Trace) -> str:
    """The tenant that asks for the fewest weighted tokens, of the highest tier."""
    asked: dict[tuple[int, str], int] = {}
    for each in trace.arrivals:
        key = trace.book.of(each.tenant).tier, each.tenant
        asked[key] = asked.get(key, 0) + each.prompt_tokens + 2 * each.answer
    highest = min(tier for tier, _ in asked)
    return min((tokens, name) for (tier, name), tokens in asked.items() if tier == highest)[1]


def peak(trace: Trace, tenant: str) -> float:
    """The most weighted tokens a second that a tenant asks for in any BURST seconds."""
    own = [(each.at, each.prompt_tokens + 2 * each.answer) for each in trace.arrivals if each.tenant == tenant]
    return max(sum(tokens for at, tokens in own if start <= at < start + BURST) for start, _ in own) / BURST


def alone(trace: Trace, tenant: str) -> Summary:
    """The same machine with one tenant."""
    own = tuple(each for each in trace.arrivals if each.tenant == tenant)
    return run(Trace.of(trace.name, own, trace.until, trace.book), ENTRANTS["drr-tokens"])


def measure(name: str, seconds: float | None, seed: int) -> dict[str, Any]:
    """A suite under every policy."""
    trace = suite_trace(name, seed, seconds)
    light = light_tenant(trace)
    lone = alone(trace, light)
    figures = {entrant: _figures(run(trace, how), light) for entrant, how in ENTRANTS.items()}
    return {
        "light": light,
        "light_peak": round(peak(trace, light), 1),
        "tenants": len(trace.names),
        "alone": lone.tenants[light].ttft.p99,
        **figures,
    }


def is_within_share(row: dict[str, Any]) -> bool:
    """Whether the light tenant never asks for more than an equal part: otherwise it waits by its own doing."""
    return bool(row["light_peak"] * row["tenants"] <= row["drr-tokens"]["busy_rate"])


def _figures(summary: Summary, light: str) -> dict[str, Any]:
    return {
        "difference": round(summary.difference.mean, 2),
        "worst_gap": round(summary.worst_gap),
        "most_time": round(max(each.machine for each in summary.tenants.values()), 3),
        "tokens_per_second": round(summary.tokens_per_second, 2),
        "light_ttft_p99": summary.tenants[light].ttft.p99,
        "light_lost": summary.tenants[light].lost,
        "recomputed": summary.recomputed,
        "busy_rate": round(
            sum(each.service for each in summary.tenants.values()) / (summary.seconds * summary.busy), 1
        ),
        "busy_step": summary.seconds * summary.busy / max(1, summary.steps),
    }


def missed(name: str, row: dict[str, Any]) -> list[str]:
    """The goals that a suite misses under drr-tokens, in words."""
    ours, vtc_ema = row["drr-tokens"], row["vtc-ema"]
    said = []
    quantum = QUANTUM_TOKENS / WINDOW
    if ours["difference"] > vtc_ema["difference"] + quantum:
        said.append(
            f"difference {ours['difference']}/s, vtc-ema's {vtc_ema['difference']}/s and a quantum {quantum:.1f}/s"
        )
    rival = "fcfs" if name in UNIFORM else "vtc"
    part = ours["tokens_per_second"] / (row[rival]["tokens_per_second"] or 1.0)
    if part < 0.99:
        said.append(f"{part:.1%} of {rival}'s tokens/s")
    most = 3 * (row["alone"] or 0.0) + 2 * ours["busy_step"]
    if not is_within_share(row):
        return said
    if ours["light_lost"]:
        said.append(f"{row['light']} lost {ours['light_lost']} requests")
    if ours["light_ttft_p99"] is None or ours["light_ttft_p99"] > most:
        said.append(f"{row['light']}'s p99 TTFT {_seconds(ours['light_ttft_p99'])} s, the goal is {most:.3f} s")
    return said


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _lines(name: str, row: dict[str, Any]) -> Sequence[Sequence[object]]:
    return [
        (
            name,
            entrant,
            row[entrant]["difference"],
            row[entrant]["worst_gap"],
            f"{row[entrant]['most_time']:.0%}",
            row[entrant]["tokens_per_second"],
            _seconds(row[entrant]["light_ttft_p99"]),
            _seconds(row["alone"]),
            row[entrant]["recomputed"],
        )
        for entrant in ENTRANTS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", nargs="*", default=list(SHARING), choices=list(SUITES), metavar="NAME")
    parser.add_argument("--seconds", type=float, help="of each suite, instead of its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a suite of seconds: does it work at all")
    asked = parser.parse_args()
    if asked.smoke:
        asked.suites, asked.seconds = ["noisy_neighbour"], 2.0
    rows = {name: measure(name, asked.seconds, asked.seed) for name in asked.suites}
    print(table(HEADING, (line for name, row in rows.items() for line in _lines(name, row))))
    misses = {name: said for name, row in rows.items() if (said := missed(name, row))}
    for name, said in misses.items():
        print(f"missed in {name}: {'; '.join(said)}")
    emit("fairness", {"seed": asked.seed, "seconds": asked.seconds, "suites": rows, "missed": misses})


if __name__ == "__main__":
    main()
