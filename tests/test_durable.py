"""durable.py: responses and lines are counted once, and nothing is left in the making that has ended."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.meters.durable import LINE_OUTCOMES, OUTCOMES, DurableMeter


def test_a_response_is_in_the_making_until_it_has_ended() -> None:
    meter = DurableMeter()
    meter.response_begun()
    meter.response_begun()
    meter.response_ended("cancelled")
    stats = meter.stats()
    assert stats.responses_making == 1
    assert stats.responses == dict.fromkeys(OUTCOMES, 0) | {"cancelled": 1}


@given(st.lists(st.integers(0, 30), max_size=6), st.data())
def test_the_lines_of_a_batch_are_left_or_have_an_outcome(sizes: list[int], data: st.DataObject) -> None:
    meter = DurableMeter()
    for place, size in enumerate(sizes):
        meter.batch_begun(f"b{place}", size)
    done = {f"b{place}": data.draw(st.integers(0, size)) for place, size in enumerate(sizes)}
    for batch, count in done.items():
        for _ in range(count):
            meter.line(batch, data.draw(st.sampled_from(LINE_OUTCOMES)))
    stats = meter.stats()
    assert stats.batches_making == len(sizes) and stats.lines_left == sum(sizes) - sum(done.values())
    assert sum(stats.lines.values()) == sum(done.values())
    for batch in done:
        meter.batch_ended(batch)
        meter.batch_ended(batch)
    assert meter.stats().batches_making == meter.stats().lines_left == 0
