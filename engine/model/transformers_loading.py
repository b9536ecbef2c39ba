"""A model directory as transformers' own model, weights and all; silent, and in words where something is wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..errors import ModelError
from .fields import one_line
from .transformers_attention import NAME, register
from .transformers_silence import silence

MOST_NAMED = 5  # tensors in an error
WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")


def load_pretrained(directory: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model in evaluation mode, attention led to NAME. Never runs code of the directory's. Raises ModelError."""
    if not any(True for pattern in WEIGHT_FILES for _ in directory.glob(pattern)):
        raise ModelError(f"{directory} has no weights that can be read: no {' and no '.join(WEIGHT_FILES)}")
    register()
    try:
        with silence():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                directory,
                dtype=dtype,
                attn_implementation=NAME,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                output_loading_info=True,
            )
    except Exception as error:  # whatever a model's own code raises
        raise ModelError(f"{directory} cannot be loaded by transformers: {one_line(str(error))}") from error
    model, info = loaded
    _check_keys(directory, info)
    assert isinstance(model, PreTrainedModel)
    model.eval().requires_grad_(False).to(device)
    return model


def _check_keys(directory: Path, info: Mapping[str, object]) -> None:
    """A model with a tensor missing would run on random numbers."""
    for kind in ("missing", "mismatched", "unexpected"):
        names = sorted(map(str, info.get(f"{kind}_keys") or ()))  # type: ignore[call-overload]
        if names:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            raise ModelError(f"{directory}: {kind} tensors: {one_line(', '.join(names[:MOST_NAMED]))}{more}")
