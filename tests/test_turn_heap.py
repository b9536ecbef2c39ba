"""turn_heap.py: names by key, equal ones in the order they came."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairstep.fairness.turn_heap import TurnHeap

NAMES = "abcdef"


def test_the_same_key_keeps_the_place_and_another_goes_behind_equal_ones() -> None:
    heap: TurnHeap[int] = TurnHeap()
    for name in "ab":
        heap.set(name, 1)
    heap.set("a", 1)
    assert heap.first(lambda name: True) == "a"
    heap.set("a", 2)
    heap.set("a", 1)
    assert heap.first(lambda name: True) == "b"


def test_the_dead_are_swept() -> None:
    heap: TurnHeap[int] = TurnHeap()
    for key in range(1000):
        heap.set("a", -key)
        heap.check()
    heap.drop("a")
    heap.check()
    assert heap.first(lambda name: True) is None


class HeapAgainstAList(RuleBasedStateMachine):
    """The heap against a list of names in the order of their last change, sorted by key."""

    def __init__(self) -> None:
        super().__init__()
        self.heap: TurnHeap[int] = TurnHeap()
        self.model: dict[str, int] = {}

    @rule(name=st.sampled_from(NAMES), key=st.integers(0, 3))
    def give(self, name: str, key: int) -> None:
        self.heap.set(name, key)
        if self.model.get(name) != key:
            self.model.pop(name, None)
            self.model[name] = key

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.heap.drop(name)
        del self.model[name]

    @rule(barred=st.sets(st.sampled_from(NAMES)))
    def first(self, barred: set[str]) -> None:
        expected = [name for name in sorted(self.model, key=self.model.__getitem__) if name not in barred]
        assert self.heap.first(lambda name: name not in barred) == (expected[0] if expected else None)

    @invariant()
    def agrees(self) -> None:
        self.heap.check()
        assert len(self.heap) == len(self.model)
        assert all(self.heap.key(name) == key for name, key in self.model.items())


TestHeapAgainstAList = HeapAgainstAList.TestCase
