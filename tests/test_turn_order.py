"""turn_order.py: names by key, equal ones in the order they came."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairstep.fairness.turn_order import TurnOrder

NAMES = "abcdef"


def test_the_same_key_keeps_the_place_and_another_goes_behind_equal_ones() -> None:
    order: TurnOrder[int] = TurnOrder()
    for name in "ab":
        order.set(name, 1)
    order.set("a", 1)
    assert order.first(lambda name: True) == "a"
    order.set("a", 2)
    order.set("a", 1)
    assert order.first(lambda name: True) == "b"


def test_a_name_that_changes_often_stands_once() -> None:
    order: TurnOrder[int] = TurnOrder()
    for key in range(1000):
        order.set("a", -key)
        order.check()
    assert len(order) == 1
    order.drop("a")
    order.check()
    assert order.first(lambda name: True) is None


class OrderAgainstAList(RuleBasedStateMachine):
    """The order against a list of names in the order of their last change, sorted by key."""

    def __init__(self) -> None:
        super().__init__()
        self.order: TurnOrder[int] = TurnOrder()
        self.model: dict[str, int] = {}

    @rule(name=st.sampled_from(NAMES), key=st.integers(0, 3))
    def give(self, name: str, key: int) -> None:
        self.order.set(name, key)
        if self.model.get(name) != key:
            self.model.pop(name, None)
            self.model[name] = key

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.order.drop(name)
        del self.model[name]

    @rule(barred=st.sets(st.sampled_from(NAMES)))
    def first(self, barred: set[str]) -> None:
        expected = [name for name in sorted(self.model, key=self.model.__getitem__) if name not in barred]
        assert self.order.first(lambda name: name not in barred) == (expected[0] if expected else None)

    @invariant()
    def agrees(self) -> None:
        self.order.check()
        assert len(self.order) == len(self.model)
        assert all(self.order.key(name) == key for name, key in self.model.items())


TestOrderAgainstAList = OrderAgainstAList.TestCase
