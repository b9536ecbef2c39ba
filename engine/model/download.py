"""Device tensors brought to the host without waiting for the device."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Download:
    """Some tensors on their way, as they are once all that was launched before is done.

    From a GPU they go to pinned memory, and an event behind them on the stream says when they are there.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._event: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors):
            self._host = [
                torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
                for tensor in tensors
            ]
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._host = [tensor.clone() for tensor in tensors]

    def wait(self) -> list[Tensor]:
        """The tensors on the host; waits for them alone, not for what was launched since."""
        if self._event is not None:
            self._event.synchronize()
        return self._host
