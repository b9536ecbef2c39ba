"""Host arrays sent to the device without waiting for it."""

import numpy as np
import torch
from torch import Tensor


def upload(values: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor on `device`, of its own memory there.

    For a GPU it goes by pinned memory, which torch keeps from being used anew before the copy is over.
    """
    host = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cpu":
        return host.clone()
    return host.pin_memory().to(device, non_blocking=True)
