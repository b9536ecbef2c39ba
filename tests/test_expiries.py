"""expiries.py: each sequence comes up once, at its last instant; dropped ones never, and their memory is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.expiries import SPARE, Expiries


def test_a_replaced_instant_does_not_count_and_a_dropped_one_neither() -> None:
    expiries = Expiries()
    expiries.set(1, 5.0)
    expiries.set(1, 8.0)
    expiries.set(2, 6.0)
    expiries.set(2, None)
    assert expiries.next_at == 8.0 and expiries.due(7.9) == []
    assert expiries.due(8.0) == [1] and expiries.next_at is None and expiries.due(99.0) == []


acts = st.tuples(st.sampled_from(("set", "drop", "due")), st.integers(0, 5), st.integers(0, 20))


@given(st.lists(acts))
def test_it_agrees_with_a_plain_dict(acts: list[tuple[str, int, int]]) -> None:
    expiries = Expiries()
    model: dict[int, float] = {}
    for what, seq, at in acts:
        if what == "set":
            expiries.set(seq, float(at))
            model[seq] = float(at)
        elif what == "drop":
            expiries.set(seq, None)
            model.pop(seq, None)
        else:
            due = {key for key, instant in model.items() if instant <= at}
            assert sorted(expiries.due(float(at))) == sorted(due)
            model = {key: instant for key, instant in model.items() if key not in due}
        assert expiries.next_at == min(model.values(), default=None)


def test_many_dropped_instants_are_forgotten_before_they_come_up() -> None:
    expiries = Expiries()
    for seq in range(10_000):
        expiries.set(seq, 1e9)
        expiries.set(seq, None)
    assert len(expiries._heap) <= SPARE + 1
