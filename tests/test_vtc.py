"""vtc.py: the least counter goes next; idle time earns nothing."""

from fairstep.fairness.vtc import WEIGHTS, VirtualTokenCounters


def serve(turns: VirtualTokenCounters, costs: dict[str, int], count: int) -> str:
    served = ""
    for _ in range(count):
        tenant = turns.first(lambda name: True)
        assert tenant is not None
        turns.start(tenant)
        turns.charge(tenant, costs[tenant])
        turns.check()
        served += tenant
    return served


def waiting(**weights: int) -> VirtualTokenCounters:
    turns = VirtualTokenCounters()
    for tenant, weight in weights.items():
        turns.enter(tenant, weight)
    return turns


def test_the_least_served_goes_next() -> None:
    assert serve(waiting(a=1, b=1), {"a": 3, "b": 1}, 8) == "abbbabbb"


def test_service_goes_by_weight() -> None:
    assert serve(waiting(a=1, b=3), {"a": 1, "b": 1}, 40).count("b") == 30


def test_a_tenant_that_comes_back_is_lifted_to_the_least_of_those_waiting() -> None:
    turns = waiting(a=1, b=1)
    serve(turns, {"a": 5, "b": 5}, 2)
    turns.leave("a")
    serve(turns, {"b": 5}, 10)
    turns.enter("a", 1)
    assert serve(turns, {"a": 5, "b": 5}, 6).count("a") == 3


def test_where_nobody_waits_it_is_lifted_to_the_last_that_left() -> None:
    turns = waiting(a=1)
    serve(turns, {"a": 5}, 4)
    turns.leave("a")
    turns.enter("b", 1)
    assert turns.debt("b") == 0
    turns.enter("a", 1)
    assert serve(turns, {"a": 5, "b": 5}, 4).count("a") == 2


def test_what_was_given_back_counts() -> None:
    turns = waiting(a=1, b=1)
    serve(turns, {"a": 10, "b": 10}, 2)
    turns.charge("b", -9)
    assert turns.debt("a") == 9
    assert serve(turns, {"a": 3, "b": 3}, 3) == "bbb"


def test_another_weight_counts_from_now_on() -> None:
    turns = waiting(a=1, b=1)
    turns.weigh("b", 4)
    assert serve(turns, {"a": 1, "b": 1}, 50).count("b") == 40


def test_who_is_passed_over_keeps_its_turn() -> None:
    turns = waiting(a=1, b=1)
    assert turns.first(lambda name: name != "a") == "b"
    assert turns.first(lambda name: True) == "a"


def test_only_counters_that_would_be_lifted_anyway_are_forgotten() -> None:
    turns = waiting(a=1, b=1)
    serve(turns, {"a": 5, "b": 1}, 2)
    turns.leave("a")
    assert not turns.forget("b")
    assert not turns.forget("a")
    turns.charge("b", 10)
    assert turns.forget("a") and turns.debt("a") == 0
    turns.check()


def test_every_weight_up_to_16_divides_exactly() -> None:
    assert all(WEIGHTS % weight == 0 for weight in range(1, 17))
