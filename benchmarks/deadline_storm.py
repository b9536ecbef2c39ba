"""Deadlines under overload, in virtual time: what is let in is done in time, and what is refused could not have been.

Each storm (`fairstep simulate --list`) runs with nobody refused, with our admission, and with the same admission as an
oracle, which knows each answer's length and each step's cost. Then refused requests are added to the admitted ones, one
at a time, and all of it runs again. A line a load and step model; nothing here depends on the machine it runs on.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from fairstep.fairness.policies import make_room
from fairstep.simulation.logbook import Logbook, Story
from fairstep.simulation.simulator import Setup, simulate
from fairstep.simulation.storm_suites import LOADS, storm
from fairstep.simulation.trace import Trace
from report import emit, table

HEADING = ("load", "believed", "requests", "never", "ours", "oracle", "in time", "refused", "tried", "would have met")
BELIEVED = (1.0, 0.5, 1.5)  # what the scheduler takes steps for, by what they cost
SAMPLE = 60  # refused requests that are tried, of each run
LEAST_IN_TIME, MOST_WRONGLY_REFUSED, LEAST_OF_ORACLE = 0.90, 0.05, 0.90


@dataclass(frozen=True, slots=True)
class Storm:
    """One storm's trace, and how many of its refused requests are tried."""

    load: float
    trace: Trace
    sample: int
    seed: int

    def run(self, trace: Trace | None = None, *, refuses: bool, believed: float, knows: bool = False) -> Logbook:
        """Its trace, or one made of it. knows: as an oracle."""
        setup = Setup(refuses=refuses, believed=believed, shared=True, knows=knows)
        return simulate(trace or self.trace, make_room("drr"), setup)

    def measure(self, believed: float) -> dict[str, Any]:
        """All figures under one step model."""
        never = self.run(refuses=False, believed=believed)
        ours = self.run(refuses=True, believed=believed)
        oracle = self.run(refuses=True, believed=1.0, knows=True)
        admitted = [story for story in ours.stories if story.end != "refused"]
        refused = [story for story in ours.stories if story.end == "refused"]
        tried = Random(self.seed).sample(refused, min(self.sample, len(refused)))
        return {
            "load": self.load,
            "believed": believed,
            "requests": len(ours.stories),
            "goodput": {
                name: self._goodput(log) for name, log in (("never", never), ("ours", ours), ("oracle", oracle))
            },
            "in_time": _part(story.is_good for story in admitted),
            "refused": len(refused),
            "tried": len(tried),
            "would_have_met": _part(self._would_meet(admitted, story, believed) for story in tried),
            "in_time_never": _part(story.is_good for story in never.stories),
        }

    def _goodput(self, log: Logbook) -> float:
        """Whole answers in time, a second in which requests come."""
        return round(sum(story.is_good for story in log.stories) / self.trace.arrivals[-1].at, 3)

    def _would_meet(self, admitted: Sequence[Story], refused: Story, believed: float) -> bool:
        """Whether a refused request would have met its deadlines among those that were admitted."""
        forced = refused.arrival
        last = forced.at + max(span for span in (forced.deadline, forced.ttft_deadline) if span is not None)
        trace = Trace.of(self.trace.name, [*(story.arrival for story in admitted), forced], last)
        log = self.run(trace, refuses=False, believed=believed)
        story = log.stories[sum(each.arrival.at <= forced.at for each in admitted)]
        return story.is_good or (forced.deadline is None and story.end not in ("expired", "refused"))


def _part(met: Iterable[bool]) -> float | None:
    """The part that is true; None of nothing."""
    values = list(met)
    return round(sum(values) / len(values), 4) if values else None


def missed(row: dict[str, Any]) -> list[str]:
    """The goals that a line misses, in words."""
    goodput, said = row["goodput"], []
    if (row["in_time"] or 0.0) < LEAST_IN_TIME:
        said.append(f"{row['in_time']:.1%} of what was let in was done in time, the goal is {LEAST_IN_TIME:.0%}")
    if (row["would_have_met"] or 0.0) > MOST_WRONGLY_REFUSED:
        said.append(f"{row['would_have_met']:.1%} refused in vain, the goal is {MOST_WRONGLY_REFUSED:.0%}")
    for rival, part in (("never", 1.0), ("oracle", LEAST_OF_ORACLE)):
        if goodput["ours"] < part * goodput[rival]:
            said.append(f"{goodput['ours']} good answers/s, {part:.0%} of {rival}'s {goodput[rival]} is the goal")
    return said


def _line(row: dict[str, Any]) -> Sequence[object]:
    goodput = [f"{row['goodput'][name]:.2f}/s" for name in ("never", "ours", "oracle")]
    parts = ["-" if row[name] is None else f"{row[name]:.1%}" for name in ("in_time", "would_have_met")]
    return row["load"], row["believed"], row["requests"], *goodput, parts[0], row["refused"], row["tried"], parts[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=float, nargs="*", default=list(LOADS), metavar="N")
    parser.add_argument("--believed", type=float, nargs="*", default=list(BELIEVED), metavar="N")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="refused requests that are tried, of each run")
    parser.add_argument("--seconds", type=float, help="in which requests come, instead of the suites' own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    asked = parser.parse_args()
    if asked.smoke:
        asked.loads, asked.believed, asked.sample, asked.seconds = [2.0], [1.0], 3, 10.0
    rows = []
    for load in asked.loads:
        trace = storm(load).trace(f"storm_{load:g}", asked.seed, asked.seconds)
        rows += [Storm(load, trace, asked.sample, asked.seed).measure(believed) for believed in asked.believed]
    print(table(HEADING, map(_line, rows)))
    misses = {f"{row['load']:g} believed {row['believed']:g}": said for row in rows if (said := missed(row))}
    for name, said in misses.items():
        print(f"missed at {name}: {'; '.join(said)}")
    emit("deadline_storm", {"seed": asked.seed, "seconds": asked.seconds, "storms": rows, "missed": misses})


if __name__ == "__main__":
    main()
