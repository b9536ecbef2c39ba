"""arrivals.py: whoever has the most urgent sequence goes next."""

from fairstep.fairness.arrivals import Arrivals


def test_the_most_urgent_sequence_goes_next_whatever_was_charged() -> None:
    turns = Arrivals()
    for name, key in (("a", (0, 5)), ("b", (0, 3))):
        turns.enter(name, 1)
        turns.head(name, key)
    turns.charge("b", 10**9)
    turns.weigh("a", 100)
    assert turns.first(lambda name: True) == "b"
    turns.start("b")
    turns.head("b", (1, 4))
    assert turns.first(lambda name: True) == "a"
    assert turns.first(lambda name: name != "a") == "b"
    assert turns.debt("b") == 0
    turns.check()


def test_nothing_is_kept_of_who_left() -> None:
    turns = Arrivals()
    turns.enter("a", 1)
    assert not turns.forget("a")
    turns.leave("a")
    assert turns.forget("a")
    assert turns.first(lambda name: True) is None
    turns.check()
