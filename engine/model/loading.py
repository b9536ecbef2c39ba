"""A model's description and weights from its source, whatever the format. Decides nothing about how it runs.

Reading a description imports no torch; loading does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .hf_config import read_hf_spec
from .sources import Source
from .spec import ModelSpec
from .tensor_shapes import OUTPUT, tensor_shapes

if TYPE_CHECKING:
    import torch

    from .blocks import Blocks

Progress = Callable[[str, float], None]
WEIGHTS = "loading weights"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """tensors: by Hugging Face's names, all of one dtype on one device; no lm_head.weight when spec.tied.

    blocks: weights of products that the file has in blocks, instead of their tensors; lm_head.weight even if spec.tied.
    """

    spec: ModelSpec
    tensors: "dict[str, torch.Tensor]"
    blocks: "dict[str, Blocks]" = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        elements = {name: tensor.numel() for name, tensor in self.tensors.items()}
        elements |= {name: blocks.elements for name, blocks in self.blocks.items()}
        return sum(count for name, count in elements.items() if name != OUTPUT or not self.spec.tied)


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
    source: Source,
    dtype: "torch.dtype",
    device: "torch.device | str",
    progress: Progress = no_progress,
    *,
    keep_blocks: bool = False,
) -> LoadedModel:
    """Read every weight as `dtype` on `device`; `progress` hears what is done and which part of it, 0 to 1.

    keep_blocks: what the file has in blocks isn't dequantised where products can take them.
    Checks all names and shapes before the first weight is read. Raises ModelError naming tensor and file.
    """
    import torch

    place = torch.device(device)
    if source.kind == "directory":
        return _load_directory(source, dtype, place, progress)
    return _load_gguf(source, dtype, place, progress, keep_blocks)


def _load_directory(source: Source, dtype: "torch.dtype", device: "torch.device", progress: Progress) -> LoadedModel:
    from .safetensors_files import SafetensorsFiles

    spec, files = read_hf_spec(source.path), SafetensorsFiles(source.path)
    files.check(tensor_shapes(spec))
    if spec.tied and files.has(OUTPUT) and not files.output_equals_embedding():
        spec = replace(spec, tied=False)  # the weights know better than the config, as in transformers
        files.check(tensor_shapes(spec))
    tensors = files.load(tensor_shapes(spec), dtype, device, lambda done: progress(WEIGHTS, done))
    return LoadedModel(spec, tensors)


def _load_gguf(
    source: Source, dtype: "torch.dtype", device: "torch.device", progress: Progress, keep_blocks: bool
) -> LoadedModel:
    from .gguf_config import read_gguf_spec
    from .gguf_file import GgufFile
    from .gguf_header import read_gguf_header

    header = read_gguf_header(source.path)
    spec = read_gguf_spec(header)
    file, shapes = GgufFile(header, spec), tensor_shapes(spec)
    file.check(shapes)
    blocks = file.blocks(shapes) if keep_blocks else {}
    floats = {name: shape for name, shape in shapes.items() if name not in blocks}
    tensors = file.load(floats, dtype, device, lambda done: progress(WEIGHTS, done))
    return LoadedModel(spec, tensors, blocks)
