"""billing.py: charged once, then differences; in the end exactly what it took."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.billing import Billing
from fairstep.fairness.pricing import UNIT, CostKind, CostModel
from fairstep.fairness.ticket import Ticket


def ticket(seq: int = 1, prompt: int = 100, most: int = 1000, tenant: str = "a") -> Ticket:
    return Ticket(seq, seq, tenant, prompt_tokens=prompt, max_tokens=most)


def finished(billing: Billing, outputs: int, *, seq: int = 1000, tenant: str = "a", micros: int = 0) -> int:
    """Units that a whole request cost."""
    units = billing.admit(ticket(seq, tenant=tenant))
    units += billing.spent(seq, computed=100 + outputs, outputs=outputs, micros=micros)
    return units + billing.end(seq, natural=True)


def test_the_whole_prompt_and_the_usual_answer_are_charged_at_admission() -> None:
    billing = Billing(CostModel())
    finished(billing, 50)
    assert billing.admit(ticket()) == (100 + 2 * 50) * UNIT
    assert billing.price(ticket(2)) == (100 + 2 * 50) * UNIT
    assert billing.admit(ticket(3, most=10)) == (100 + 2 * 10) * UNIT


def test_cached_tokens_come_back_with_the_first_report_and_only_then() -> None:
    billing = Billing(CostModel())
    billing.admit(ticket())
    assert billing.spent(1, cached=40, computed=60) == -36 * UNIT
    assert billing.spent(1, cached=99, recomputed=1) == 0


def test_whoever_is_called_back_before_it_began_gets_its_cached_tokens_when_it_does() -> None:
    billing = Billing(CostModel())
    billing.admit(ticket())
    assert billing.spent(1) == billing.admit(ticket()) == 0
    assert billing.spent(1, cached=40, computed=60) == -36 * UNIT
    assert billing.spent(1, cached=99, recomputed=1) == 0


def test_outputs_beyond_the_usual_cost_as_they_come_and_missing_ones_come_back() -> None:
    billing = Billing(CostModel())
    finished(billing, 3)
    billing.admit(ticket(1))
    assert [billing.spent(1, computed=1, outputs=1) for _ in range(5)] == [0, 0, 0, 2 * UNIT, 2 * UNIT]
    assert billing.end(1, natural=False) == 0
    billing.admit(ticket(2))
    assert billing.spent(2, computed=101, outputs=1) == 0
    assert billing.end(2, natural=True) == -2 * 2 * UNIT


def test_whoever_comes_back_pays_nothing_again_and_recomputing_is_the_systems() -> None:
    billing = Billing(CostModel())
    billing.admit(ticket())
    billing.spent(1, computed=104, outputs=5)
    assert billing.price(ticket()) == billing.admit(ticket()) == 0
    assert billing.spent(1, cached=64, recomputed=41, outputs=1) == 2 * UNIT
    assert (billing.recomputed, billing.system_units) == (41, 41 * UNIT)


def test_a_cancelled_sequence_pays_what_was_computed() -> None:
    billing = Billing(CostModel())
    charged = billing.admit(ticket())
    charged += billing.spent(1, cached=20, computed=30)
    charged += billing.end(1, natural=False)
    assert charged == (30 + 2) * UNIT


def test_nothing_done_costs_nothing() -> None:
    for kind in ("tokens", "requests", "adaptive"):
        billing = Billing(CostModel(kind=kind))
        assert billing.admit(ticket()) + billing.end(1, natural=False) == 0


def test_only_answers_that_end_by_themselves_tell_what_is_usual() -> None:
    billing = Billing(CostModel())
    billing.admit(ticket())
    billing.spent(1, computed=100, outputs=500)
    billing.end(1, natural=False)
    assert billing.expected("a", 1000) == 0
    finished(billing, 7)
    assert billing.expected("a", 1000) == 7


def test_max_tokens_tells_nothing_where_answers_are_short() -> None:
    billing = Billing(CostModel())
    for seq in range(10):
        finished(billing, 10, seq=seq)
    assert billing.expected("a", 4096) == 10


def test_plain_vtc_expects_nothing() -> None:
    billing = Billing(CostModel(), expects=False)
    finished(billing, 50)
    assert billing.admit(ticket()) == 100 * UNIT


def test_a_tenant_whose_work_takes_long_pays_more_for_each_token() -> None:
    billing = Billing(CostModel(kind="adaptive"))
    for seq in range(60):
        finished(billing, 10, seq=2 * seq, tenant="slow", micros=3000)
        finished(billing, 10, seq=2 * seq + 1, tenant="quick", micros=1000)
    assert billing.factor("slow") / billing.factor("quick") > 2.9
    assert billing.factor("slow") > 1000 > billing.factor("quick")
    assert billing.factor("nobody yet") == 1000


def test_a_sequence_keeps_the_factor_it_was_admitted_with() -> None:
    billing = Billing(CostModel(kind="adaptive"))
    billing.admit(ticket(1, tenant="slow"))
    for seq in range(10, 30):
        finished(billing, 10, seq=2 * seq, tenant="slow", micros=9000)
        finished(billing, 10, seq=2 * seq + 1, tenant="quick", micros=100)
    assert billing.factor("slow") > 1000
    assert billing.spent(1, computed=100, outputs=1) == 2 * UNIT


@given(
    st.sampled_from(["tokens", "requests", "adaptive"]),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 9), st.integers(0, 5)), max_size=12),
    st.integers(1, 60),
    st.integers(0, 40),
)
def test_charges_less_refunds_are_what_it_took(
    kind: CostKind, reports: list[tuple[int, int, int, int]], prompt: int, usual: int
) -> None:
    billing = Billing(CostModel(kind=kind))
    for seq in (50, 52):
        finished(billing, usual, seq=seq, micros=1777)
        finished(billing, usual, seq=seq + 1, tenant="b", micros=100)
    prices = billing.cost.prices(billing.factor("a"))
    charged = billing.admit(ticket(prompt=prompt))
    done = outputs = found = 0
    for place, (cached, computed, recomputed, drawn) in enumerate(reports):
        charged += billing.spent(1, cached=cached, computed=computed, recomputed=recomputed, outputs=drawn)
        billing.check()
        found = min(cached, prompt) if place == 0 else found
        done = (found if place == 0 else done) + computed + recomputed
        outputs += drawn
    done = prompt if outputs else min(done, prompt)
    took = prices.cost(uncached=done - found, cached=found, outputs=outputs) if done else 0
    assert charged + billing.end(1, natural=True) == took
