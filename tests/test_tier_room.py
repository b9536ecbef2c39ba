"""tier_room.py: one tier's tenants, what is known of each, and how the idle are forgotten."""

from fairstep.fairness.drr import DeficitRoundRobin
from fairstep.fairness.tenant_queue import by_urgency
from fairstep.fairness.ticket import Ticket
from fairstep.fairness.tier_room import May, TierRoom, everybody


def tier_room(quantum: int = 10) -> TierRoom:
    return TierRoom(0, DeficitRoundRobin(quantum), by_urgency, most_idle=5)


def head_of(room: TierRoom, kept: str | None = None, *, may: May = everybody, within: May = everybody) -> str | None:
    head = room.head(may, within, kept)
    return head and head.tenant


def ticket(seq: int, tenant: str, weight: int = 1, *, again: bool = False) -> Ticket:
    return Ticket(seq, seq, tenant, weight=weight, again=again)


def take(room: TierRoom, units: int = 5) -> Ticket:
    head = room.head(everybody, everybody, None)
    assert head is not None
    room.begin(head, units, ahead=False)
    room.leave(head, units)
    room.check()
    return head


def test_a_tenants_standing_tells_what_waits_runs_was_charged_and_is_owed() -> None:
    room = tier_room()
    for seq in (1, 2, 3):
        room.add(ticket(seq, "a", 3), 15)
    room.add(ticket(4, "b"), 15)
    assert take(room, 15).tenant == "a"
    a, b = room.standings()
    assert (a.share, a.waiting, a.running, a.queued, a.served, a.debt) == (0.75, 2, 1, 30, 15, -15)
    assert (b.share, b.waiting, b.running, b.queued, b.served, b.debt) == (0.25, 1, 0, 15, 0, -10)


def test_shares_count_who_waits_or_runs() -> None:
    room = tier_room()
    room.add(ticket(1, "a"), 5)
    room.add(ticket(2, "b"), 5)
    first = take(room)
    assert room.weights == 2
    room.end(first.tenant)
    assert room.weights == 1
    room.check()


def test_new_sequences_bring_a_new_weight_and_old_ones_do_not() -> None:
    room = tier_room()
    room.add(ticket(1, "a", 1), 5)
    room.add(ticket(2, "a", 4), 5)
    assert room.weight("a") == room.weights == 4
    room.add(ticket(3, "a", 1, again=True), 5)
    assert room.weight("a") == 4
    room.check()


def test_a_cap_holds_only_while_another_tenant_may_be_served() -> None:
    room = tier_room()
    room.add(ticket(1, "a"), 5)
    room.add(ticket(2, "b"), 5)
    assert head_of(room, within=lambda ticket: ticket.tenant != "a") == "b"
    assert head_of(room, within=lambda ticket: False) == "a"
    assert head_of(room, may=lambda ticket: ticket.tenant != "b", within=lambda ticket: ticket.tenant != "a") == "a"
    assert head_of(room, may=lambda ticket: False) is None


def test_whom_room_is_kept_for_goes_first_whatever_it_owes() -> None:
    room = tier_room()
    for seq, tenant in enumerate("abcabcabc"):
        room.add(ticket(seq, tenant), 25)
    head = room.head(everybody, everybody, "c")
    assert head is not None and head.tenant == "c"
    room.begin(head, 25, ahead=True)
    room.leave(head, 25)
    room.check()
    assert room.debt("c") == 25
    assert head_of(room, "c") == "c"
    assert head_of(room) == "a"
    assert head_of(room, "c", may=lambda ticket: ticket.tenant != "c") == "a"


def test_idle_tenants_are_forgotten_as_others_go_by() -> None:
    room = tier_room()
    for seq in range(1000):
        room.add(ticket(seq, f"t{seq}"), 35)
        room.end(take(room, 35).tenant)
    assert len(list(room.standings())) < 10
    assert room.weights == room.waiting == 0
