"""A model's description and weights from its source, whatever the format. Decides nothing about how it runs.

Reading a description imports no torch; loading does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .hf_config import read_hf_spec
from .sources import Source
from .spec import ModelSpec
from .tensor_shapes import OUTPUT, tensor_shapes

if TYPE_CHECKING:
    import torch

Progress = Callable[[str, float], None]
WEIGHTS = "loading weights"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """tensors: by Hugging Face's names, all of one dtype on one device; no lm_head.weight when spec.tied."""

    spec: ModelSpec
    tensors: "dict[str, torch.Tensor]"


def no_progress(what: str, fraction: float) -> None:
    """A progress callback that shows nothing."""


def read_spec(source: Source) -> ModelSpec:
    """What the model is, from its config alone. Raises ModelError."""
    if source.kind == "directory":
        return read_hf_spec(source.path)
    from .gguf_config import read_gguf_spec
    from .gguf_header import read_gguf_header

    return read_gguf_spec(read_gguf_header(source.path))


def load(
    source: Source, dtype: "torch.dtype", device: "torch.device | str", progress: Progress = no_progress
) -> LoadedModel:
    """Read every weight as `dtype` on `device`; `progress` hears what is done and which part of it, 0 to 1.

    Checks all names and shapes before the first weight is read. Raises ModelError naming tensor and file.
    """
    import torch

    place = torch.device(device)
    if source.kind == "directory":
        return _load_directory(source, dtype, place, progress)
    return _load_gguf(source, dtype, place, progress)


def _load_directory(source: Source, dtype: "torch.dtype", device: "torch.device", progress: Progress) -> LoadedModel:
    from .safetensors_files import SafetensorsFiles

    spec, files = read_hf_spec(source.path), SafetensorsFiles(source.path)
    files.check(tensor_shapes(spec))
    if spec.tied and files.has(OUTPUT) and not files.output_equals_embedding():
        spec = replace(spec, tied=False)  # the weights know better than the config, as in transformers
        files.check(tensor_shapes(spec))
    tensors = files.load(tensor_shapes(spec), dtype, device, lambda done: progress(WEIGHTS, done))
    return LoadedModel(spec, tensors)


def _load_gguf(source: Source, dtype: "torch.dtype", device: "torch.device", progress: Progress) -> LoadedModel:
    from .gguf_config import read_gguf_spec
    from .gguf_file import GgufFile
    from .gguf_header import read_gguf_header

    header = read_gguf_header(source.path)
    spec = read_gguf_spec(header)
    file = GgufFile(header, spec)
    file.check(tensor_shapes(spec))
    tensors = file.load(tensor_shapes(spec), dtype, device, lambda done: progress(WEIGHTS, done))
    return LoadedModel(spec, tensors)
