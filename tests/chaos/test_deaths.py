"""What a worker held when it died: all of it is answered, a culprit gets its own error, and nothing is said twice."""

import pytest

from chaos.plant import BREAKS, KILLS, Plant
from fairstep.request import SamplingParams
from fakes_worker import settings

LONG = SamplingParams(max_tokens=20)


def test_one_culprit_among_32_kills_the_process_and_31_finish() -> None:
    plant = Plant(settings(seats=32, pages=1000))
    names = [plant.submit(KILLS if place == 13 else 97, LONG) for place in range(32)]
    plant.settle()
    ended = [plant.told[name or ""][-1] for name in names]
    assert [place for place, last in enumerate(ended) if last.finish_reason != "length"] == [13]
    assert ended[13].code == "request_failed_isolated"
    print(f"\n31 finished, restarts: {plant.counts['deaths']}")
    assert plant.counts["deaths"] <= 12
    plant.judge()
    assert plant.submit(KILLS, LONG) is not None, "another prompt of the same tenant is let in"


def test_the_culprits_like_is_refused_for_ten_minutes() -> None:
    plant = Plant(settings(seats=4))
    prompt = {"length": 1}
    plant.submit(KILLS, LONG, **prompt)
    plant.settle()
    assert plant.submit(KILLS, LONG, **prompt) is None
    assert plant.submit(KILLS, LONG, tenant="b", **prompt) is not None
    plant.clock.jump(600)
    assert plant.submit(KILLS, LONG, **prompt) is not None


@pytest.mark.parametrize("place", range(9))
def test_the_culprit_is_found_wherever_it_stands(place: int) -> None:
    plant = Plant(settings(seats=9, pages=500))
    for each in range(9):
        plant.submit(KILLS if each == place else 97, LONG)
    plant.settle(on_turn=plant.front.check)
    assert plant.counts["length"] == 8 and plant.counts["request_failed_isolated"] == 1
    plant.judge()


def test_two_culprits_are_both_found() -> None:
    plant = Plant(settings(seats=16, pages=500))
    for place in range(16):
        plant.submit(KILLS if place in (3, 11) else 97, LONG)
    plant.settle()
    assert plant.counts["length"] == 14 and plant.counts["request_failed_isolated"] == 2
    plant.judge()


def test_a_death_by_others_costs_no_attempt_and_streams_go_on() -> None:
    plant = Plant(settings(seats=16, pages=500))
    names = [plant.submit(97, LONG) for _ in range(16)]
    for _ in range(5):
        plant.turn()
    plant.kill(0)
    plant.settle(on_turn=plant.front.check)
    assert plant.counts["length"] == 16 and plant.metrics.failures.stats(0).retried == 16
    assert all(len(plant.tokens(name or "")) == 20 for name in names)
    plant.judge()


def test_where_workers_die_again_and_again_requests_are_told_so() -> None:
    plant = Plant(settings(seats=4, pages=100))
    names = [plant.submit(97, SamplingParams(max_tokens=100)) for _ in range(4)]
    while plant.front.has_requests:
        while plant.restarts_due:
            plant.start()
        for _ in range(8):
            plant.turn()
        if plant.hands:
            plant.kill(next(iter(plant.hands)))
    assert {plant.told[name or ""][-1].code for name in names} <= {"worker_lost", "request_failed_isolated"}
    assert plant.counts["worker_lost"] > 0
    plant.settle()
    plant.judge()


def test_the_other_worker_goes_on_and_the_waiting_room_is_one() -> None:
    plant = Plant(settings(seats=4, pages=100), count=2)
    for _ in range(12):
        plant.submit(97, LONG)
    plant.turn()
    assert [len(station.seqs) for station in plant.front._workers.stations] == [6, 6], "two of them ahead of need"
    plant.kill(0)
    while plant.front.live().running == 0:
        plant.turn()
    plant.settle(on_turn=plant.front.check)
    assert plant.counts["length"] == 12
    plant.judge()


def test_suspects_are_tried_in_the_other_worker_where_theirs_is_not_started_again() -> None:
    plant = Plant(settings(seats=4, pages=100), count=2)
    for _ in range(8):
        plant.submit(97, LONG)
    plant.turn()
    plant.kill(0)
    plant.front.expect([])
    for _ in range(500):
        plant.turn()
        plant.front.check()
    assert plant.counts["length"] == 8
    plant.judge()


def test_numbers_that_are_not_finite_fail_one_sequence() -> None:
    plant = Plant(settings(seats=4))
    for first in (97, BREAKS, 97):
        plant.submit(first, LONG)
    plant.settle()
    assert plant.counts["length"] == 2 and plant.counts["error"] == 1 and not plant.counts["deaths"]
    plant.judge()


def test_what_comes_twice_or_too_late_is_dropped_and_counted() -> None:
    plant = Plant(settings(seats=4))
    plant.submit(97, LONG)
    for _ in range(4):
        plant.turn()
    plant.repeat()
    plant.kill(0)
    plant.start()
    plant.repeat()
    assert plant.counts["stale"] > 0
    plant.settle()
    plant.judge()
