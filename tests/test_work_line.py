"""work_line.py: what goes before a place in a queue."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.work_line import BLOCK, NO_WORK, Work, WorkLine, total

acts = st.lists(st.tuples(st.booleans(), st.integers(-3, 30), st.integers(0, 9)), max_size=80)


@given(acts, st.integers(-5, 35))
def test_it_agrees_with_a_plain_dict(acts: list[tuple[bool, int, int]], asked: int) -> None:
    line, model = WorkLine(), dict[tuple[float, ...], Work]()
    for adds, number, prompt in acts:
        key = (float(number),)
        if adds and key not in model:
            model[key] = Work(1, prompt, 2 * prompt)
            line.add(key, model[key])
        elif not adds and key in model:
            del model[key]
            line.remove(key)
        line.check()
    assert line.total == total(model.values()) and len(line) == len(model)
    assert line.before((float(asked),)) == total(work for key, work in model.items() if key < (float(asked),))


def test_many_are_kept_in_blocks_that_are_halved_and_dropped() -> None:
    line = WorkLine()
    keys = [(float(number * 7919 % 10_007), float(number)) for number in range(10_000)]
    for key in keys:
        line.add(key, Work(1, 10, 20))
    line.check()
    assert max(len(block.entries) for block in line._blocks) < 2 * BLOCK
    assert line.before(sorted(keys)[6000]) == Work(6000, 60_000, 120_000)
    for key in keys:
        line.remove(key)
    line.check()
    assert not line and line.total == NO_WORK and line._blocks == []
