"""Where a model is computed and what computes its attention: chosen once, from settings and what is found."""

import importlib.util
import os
from dataclasses import dataclass

import torch

from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """attention: "triton" or "torch". notes: for people, where something better is missing."""

    device: torch.device
    attention: str
    notes: tuple[str, ...] = ()


def choose_device(device: str, attention: str) -> DeviceChoice:
    """Both settings as EngineConfig has them. Raises ConfigError for what cannot be here.

    ROCm's devices are called cuda in torch, and so here.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is cuda, but torch {torch.__version__} finds no GPU here: set it to cpu or auto")
    gpu = device != "cpu" and torch.cuda.is_available()
    chosen = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
    if attention == "torch" or (attention == "auto" and not gpu):
        return DeviceChoice(chosen, "torch")
    if importlib.util.find_spec("triton") is None:
        missing = "triton is not installed: pip install 'fairstep[gpu]'"
        if attention == "triton":
            raise ConfigError(f"attention is triton, but {missing}")
        return DeviceChoice(chosen, "torch", (f"computed by torch, which is slower than our kernels: {missing}",))
    if not gpu and not interpreted():
        raise ConfigError(
            "attention is triton, whose kernels run on a GPU, and the device is the CPU: set it to auto or torch (with "
            "TRITON_INTERPRET=1 in the environment they are interpreted, thousands of times slower, for tests)"
        )
    return DeviceChoice(chosen, "triton")


def interpreted() -> bool:
    """Whether triton will interpret kernels on the CPU, as it reads it from the environment."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on")
