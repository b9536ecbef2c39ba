"""A step that raises: the culprit gets its own error, all others finish, and few runs are made for it."""

import pytest

from chaos.plant import RAISES, Plant
from fairstep.request import SamplingParams
from fakes_worker import settings

LONG = SamplingParams(max_tokens=20)


def played(culprits: tuple[int, ...], count: int = 32, ahead: int = 0) -> tuple[Plant, list[str]]:
    plant = Plant(settings(seats=32, pages=1000, step_tokens=128, ahead=ahead))
    names = [plant.submit(RAISES if place in culprits else 97, LONG) or "" for place in range(count)]
    plant.settle(on_turn=plant.front.check)
    plant.judge()
    return plant, names


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("place", [0, 13, 31])
def test_one_culprit_among_32_and_31_finish(place: int, ahead: int) -> None:
    control, _ = played((), ahead=ahead)
    plant, names = played((place,), ahead=ahead)
    ends = [plant.told[name][-1] for name in names]
    assert [at for at, end in enumerate(ends) if end.finish_reason != "length"] == [place]
    assert ends[place].code == "request_failed_isolated" and "out of luck" in (ends[place].error or "")
    assert len(plant.tokens(names[place])) == 2, "what it had said stays said"
    extra = plant.hands[0].runner.runs - control.hands[0].runner.runs
    print(f"\n31 finished, {extra} more runs")
    assert extra <= 11
    assert not plant.counts["deaths"]


def test_several_culprits_get_their_own_errors() -> None:
    plant, names = played((3, 4, 20))
    assert [at for at, name in enumerate(names) if plant.told[name][-1].finish_reason != "length"] == [3, 4, 20]
    assert plant.counts["request_failed_isolated"] == 3


def test_one_that_fails_alone_is_not_blamed_for_more_than_itself() -> None:
    plant, names = played((0,), count=1)
    assert plant.told[names[0]][-1].code is None and "out of luck" in (plant.told[names[0]][-1].error or "")
    assert plant.submit(RAISES, LONG) is not None


def test_where_nothing_runs_nobody_is_the_culprit() -> None:
    plant, _ = played(tuple(range(8)), count=8)
    assert plant.counts["error"] == 8 and not plant.counts["request_failed_isolated"]
    assert not len(plant.front._workers.recovery.quarantine)
    assert plant.hands[0].runner.runs < 2 + 3 * 8, "the same group is not run without end"


def test_a_cancel_between_the_halves_is_heeded() -> None:
    plant = Plant(settings(seats=8, pages=100))
    names = [plant.submit(RAISES if place == 6 else 97, LONG) or "" for place in range(8)]
    while plant.hands[0].runner.runs < 4:
        plant.turn()
    for name in names[4:]:
        plant.cancel(name)
    plant.settle(on_turn=plant.front.check)
    assert plant.counts["length"] == 4 and plant.counts["cancelled"] == 4
    plant.judge()
