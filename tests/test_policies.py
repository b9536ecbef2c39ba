"""policies.py: the waiting rooms by name."""

import pytest

from fairstep.fairness.policies import POLICIES, Policy, default_quantum, make_room
from fairstep.fairness.pricing import UNIT, CostModel
from fairstep.fairness.ticket import Ticket


def order_of(policy: Policy, prompts: dict[str, int], *, each: int = 4) -> str:
    room = make_room(policy)
    seq = 0
    for tenant, prompt in prompts.items():
        for _ in range(each):
            seq += 1
            room.add(Ticket(seq, seq, tenant, prompt_tokens=prompt, max_tokens=10))
    return "".join(room.take().tenant for _ in range(seq))


def test_first_come_first_served_serves_the_flood_first() -> None:
    assert order_of("fcfs", {"a": 100, "b": 100}) == "aaaabbbb"


@pytest.mark.parametrize("policy", ["vtc", "vtc-ema"])
def test_vtc_alternates(policy: Policy) -> None:
    assert order_of(policy, {"a": 300, "b": 100}) == "abbbabaa"


def test_drr_gives_turns_of_a_quantum() -> None:
    assert order_of("drr", {"a": 250, "b": 250}) == "aabbaabb"


def test_only_plain_vtc_expects_no_outputs() -> None:
    for policy in POLICIES:
        room = make_room(policy)
        for seq in (1, 2):
            room.add(Ticket(seq, seq, "a", prompt_tokens=10, max_tokens=10))
            room.take()
            if seq == 1:
                room.spent(1, computed=15, outputs=5)
                room.end(1, natural=True)
        served = 20 + (10 if policy == "vtc" else 20)
        assert next(room.standings()).served == served * UNIT


def test_a_round_gives_about_one_request() -> None:
    assert default_quantum(CostModel()) == 500 * UNIT
    assert default_quantum(CostModel(kind="requests")) == UNIT
