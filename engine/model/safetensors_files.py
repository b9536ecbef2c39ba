"""Weights from safetensors files, single or sharded, straight to their dtype and device. Knows no config.

A file is opened again for each tensor: its mapping then holds one tensor's pages, not all that were read so far.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import ModelError
from .fields import read_json
from .tensor_shapes import EMBEDDING, OUTPUT, Shape, check_shape

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
FLOATS = {"F64", "F32", "F16", "BF16"}


class SafetensorsFiles:
    """The tensors of a model directory: which file holds which. Raises ModelError naming tensor and file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file_of = self._single() if (directory / SINGLE_FILE).exists() else self._sharded()

    def has(self, name: str) -> bool:
        return name in self._file_of

    def check(self, shapes: Mapping[str, Shape]) -> None:
        """Every tensor is there, with this shape and a float type, and no other bias; reads little but headers."""
        by_file: dict[Path, list[str]] = {}
        for name in shapes:
            by_file.setdefault(self._path(name), []).append(name)
        for path, names in by_file.items():
            with _opened(path) as file:
                present = set(file.keys())
                for name in names:
                    if name not in present:
                        raise ModelError(f"{path} has no tensor {name}, though {INDEX_FILE} says so")
                    slice_ = file.get_slice(name)
                    check_shape(name, tuple(slice_.get_shape()), shapes[name], path)
                    if slice_.get_dtype() not in FLOATS:
                        raise ModelError(
                            f"{path}: {name} is {slice_.get_dtype()}; known are {', '.join(sorted(FLOATS))}"
                        )
        self._refuse_other_biases(shapes)

    def load(
        self,
        shapes: Mapping[str, Shape],
        dtype: torch.dtype,
        device: torch.device,
        progress: Callable[[float], None],
    ) -> dict[str, Tensor]:
        """The tensors named in `shapes`. Peak memory is the result and one tensor more."""
        tensors: dict[str, Tensor] = {}
        for count, (name, shape) in enumerate(shapes.items(), start=1):
            target = torch.empty(shape, dtype=dtype, device=device)
            with _opened(self._path(name)) as file:
                target.copy_(file.get_tensor(name))
            tensors[name] = target
            progress(count / len(shapes))
        return tensors

    def output_equals_embedding(self) -> bool:
        """Whether a stored lm_head.weight is the embedding again."""
        with _opened(self._path(OUTPUT)) as one, _opened(self._path(EMBEDDING)) as other:
            return torch.equal(one.get_tensor(OUTPUT), other.get_tensor(EMBEDDING))

    def _refuse_other_biases(self, shapes: Mapping[str, Shape]) -> None:
        """Without them the model would run, and wrongly. Those that are all zero change nothing."""
        for name in self._file_of:
            beside = name.removesuffix(".bias")
            if beside == name or name in shapes or f"{beside}.weight" not in shapes:
                continue
            with _opened(self._path(name)) as file:
                if file.get_tensor(name).any():
                    raise ModelError(f"{self._path(name)} has a {name}, a bias that the model's config doesn't know")

    def _path(self, name: str) -> Path:
        if name not in self._file_of:
            raise ModelError(f"{self._directory}: no tensor {name} in its safetensors files")
        return self._directory / self._file_of[name]

    def _single(self) -> dict[str, str]:
        with _opened(self._directory / SINGLE_FILE) as file:
            return dict.fromkeys(file.keys(), SINGLE_FILE)

    def _sharded(self) -> dict[str, str]:
        index = self._directory / INDEX_FILE
        if not index.exists():
            raise ModelError(f"{self._directory} has neither {SINGLE_FILE} nor {INDEX_FILE}")
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
            raise ModelError(f"{index}: weight_map must map tensor names to file names")
        for file in sorted(set(names.values())):
            if Path(file).name != file:
                raise ModelError(f"{index}: {file!r} must be a file in the same directory")
            if not (self._directory / file).is_file():
                raise ModelError(f"{self._directory / file} is missing, though {INDEX_FILE} names it")
        return names


@contextmanager
def _opened(path: Path) -> Iterator[safe_open]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a whole safetensors file: {error}") from error
