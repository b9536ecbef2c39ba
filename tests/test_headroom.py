"""headroom.py: the last Report less what was sent since, and at most two ahead of need."""

from fairstep.door import Headroom
from fairstep.headroom import AHEAD, RoomLeft


def test_what_was_sent_counts_until_a_report_covers_it() -> None:
    room = RoomLeft(seats=4, pages=10)
    room.send(orders=1, pages=6)
    room.send(orders=2, pages=3)
    room.report(1, Headroom(seats=3, pages=4))
    assert room.can_send(1)
    room.send(orders=3, pages=1)
    room.report(3, Headroom(seats=1, pages=0))
    assert room.can_send(1), "it does not fit, but may wait ahead"


def test_only_so_many_wait_ahead_of_need() -> None:
    room = RoomLeft(seats=1, pages=100)
    room.send(1, 1)
    for _ in range(AHEAD):
        assert room.can_send(1)
        room.send(1, 1)
    assert not room.can_send(1)


def test_those_waiting_in_the_worker_count_as_ahead() -> None:
    room = RoomLeft(seats=1, pages=100)
    room.report(1, Headroom(seats=-1, pages=5, queued=AHEAD))
    assert not room.can_send(1)
    room.report(2, Headroom(seats=0, pages=5, queued=AHEAD - 1))
    assert room.can_send(1)


def test_pages_run_out_before_seats() -> None:
    room = RoomLeft(seats=10, pages=4)
    room.send(1, 3)
    room.send(1, 3)
    room.send(1, 3)
    assert not room.can_send(3)
