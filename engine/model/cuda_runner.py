"""What only a GPU does for a DeviceRunner: steps recorded as CUDA graphs, as torch calls them on ROCm too."""

import torch
from torch import Tensor

from .graphs import CannotRecord, Step


class CudaRecorder:
    """A graphs.Recorder. All recordings share one pool of memory, as they run one after another."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, step: Step) -> Step:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                out = step()
        except torch.cuda.OutOfMemoryError as error:
            raise CannotRecord("the GPU's memory does not hold the recording") from error
        except RuntimeError as error:
            raise CannotRecord(f"{type(error).__name__}: {error}") from error

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay
