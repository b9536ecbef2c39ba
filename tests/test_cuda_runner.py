"""cuda_runner.py over a fake of torch's graphs: what is recorded is replayed into one tensor, failures are told."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from fairstep.model.cuda_runner import CudaRecorder
from fairstep.model.graphs import CannotRecord


class FakeGraph:
    replays = 0

    def replay(self) -> None:
        FakeGraph.replays += 1


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> CudaRecorder:
    @contextmanager
    def capturing(graph: FakeGraph, pool: tuple[int, int], capture_error_mode: str) -> Iterator[None]:
        assert pool == (0, 7), "recordings share a pool"
        yield

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(FakeGraph, "replays", 0)
    return CudaRecorder()


def test_a_recording_computes_the_step_once_and_replays_into_the_same_tensor(recorder: CudaRecorder) -> None:
    made: list[Tensor] = []

    def step() -> Tensor:
        made.append(torch.zeros(2))
        return made[-1]

    replay = recorder.record(step)
    assert replay() is replay() is made[0] and len(made) == 1 and FakeGraph.replays == 2


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.cuda.OutOfMemoryError("too much"), "memory does not hold"),
        (RuntimeError("operation not permitted"), "not permitted"),
    ],
)
def test_what_cannot_be_recorded_is_said(recorder: CudaRecorder, error: Exception, says: str) -> None:
    def step() -> Tensor:
        raise error

    with pytest.raises(CannotRecord, match=says):
        recorder.record(step)
