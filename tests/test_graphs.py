"""graphs.py: buckets of decodes, run plainly first, recorded at the second use and replayed from then on."""

import pytest
import torch
from torch import Tensor

from fairstep.model.graphs import CannotRecord, Graphs, Step, buckets


class FakeRecorder:
    """Notes what is recorded; a recording adds 100 to what the step gives."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.recorded: list[int] = []

    def record(self, step: Step) -> Step:
        rows = int(step()[0])
        if rows > self.most:
            raise CannotRecord("too large")
        self.recorded.append(rows)
        return lambda: step() + 100


def gives(rows: int) -> Step:
    def step() -> Tensor:
        return torch.tensor([rows])

    return step


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, (1,)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (9, (1, 2, 4, 8, 9)),
        (32, (1, 2, 4, 8, 16, 24, 32)),
        (250, (1, 2, 4, *range(8, 250, 8), 250)),
    ],
)
def test_buckets_are_close_and_end_with_the_largest_step(most: int, sizes: tuple[int, ...]) -> None:
    assert buckets(most) == sizes


@pytest.mark.parametrize("most", [1, 7, 32, 250])
def test_a_step_gets_the_smallest_bucket_that_holds_it(most: int) -> None:
    graphs = Graphs(FakeRecorder(), most)
    for rows in range(1, most + 1):
        size = graphs.size_for(rows)
        assert size is not None and size >= rows
        assert not any(rows <= other < size for other in buckets(most))
    assert graphs.size_for(most + 1) is None


def test_the_first_step_of_a_size_is_plain_the_second_is_recorded_and_later_ones_replayed() -> None:
    recorder = FakeRecorder()
    graphs = Graphs(recorder, 32)
    first = int(graphs.run(8, gives(8)))
    assert (first, recorder.recorded) == (8, [])
    assert [int(graphs.run(8, gives(8))) for _ in range(3)] == [108, 108, 108] and recorder.recorded == [8]
    assert int(graphs.run(16, gives(16))) == 16, "another size begins anew"


def test_where_nothing_records_nothing_is_filled_up() -> None:
    graphs = Graphs(None, 32)
    assert graphs.size_for(1) is None


def test_a_size_that_cannot_be_recorded_runs_plainly_and_so_do_larger_ones(caplog: pytest.LogCaptureFixture) -> None:
    graphs = Graphs(FakeRecorder(most=10), 32)
    assert [int(graphs.run(16, gives(16))) for _ in range(3)] == [16, 16, 16]
    assert len(caplog.records) == 1 and "too large" in caplog.text and "16 decodes" in caplog.text
    assert graphs.size_for(12) is None and graphs.size_for(30) is None and graphs.size_for(5) == 8
