"""The head of a GGUF file: its metadata and where each tensor lies. Knows no torch and no model.

Format: github.com/ggml-org/ggml, docs/gguf.md. The gguf package's reader makes a numpy array for each string of the
vocabulary, which takes seconds; this one walks the same bytes in a fraction of one.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ..errors import ModelError
from .fields import one_line

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
DEFAULT_ALIGNMENT = 32
MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in the file. shape: outermost dimension first, as torch has it. offset: bytes from the file's start."""

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def elements(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.kind]
        return self.size // block_bytes * block


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """metadata: values as Python's own (str, int, float, bool, list). tensors: by GGUF's name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the head and check that every tensor lies inside the file. Raises ModelError."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != MAGIC:
                raise ModelError(f"{path} is not a GGUF file: it begins with {data[:4]!r}")
            return _Walker(path, data).header()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except struct.error as error:
        raise ModelError(f"{path}: the file is truncated: it ends inside its header") from error
    except ValueError as error:  # an empty file cannot be mapped; undecodable text
        raise ModelError(f"{path} is not a readable GGUF file: {error}") from error


class _Walker:
    """Walks a mapped header from front to back."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = len(MAGIC)

    def header(self) -> GgufHeader:
        version = self._scalar("I")
        if version not in VERSIONS:
            raise self._error(f"GGUF version {version} is unknown; known are 2 and 3, little-endian")
        tensor_count, key_count = self._scalar("Q"), self._scalar("Q")
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self._string()
            metadata[key] = self._value(self._scalar("I"))
        infos = [self._tensor_info() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise self._error(f"general.alignment must be a positive integer, not {alignment!r}")
        start = -(-self._at // alignment) * alignment
        return GgufHeader(self._path, metadata, {info[0]: self._placed(*info, start) for info in infos})

    def _error(self, problem: str) -> ModelError:
        return ModelError(f"{self._path}: {one_line(problem)}")

    def _scalar(self, code: str) -> Any:
        return self._scalars(code, 1)[0]

    def _scalars(self, code: str, count: int) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        """Strings in a row, each after its length; one loop, because a vocabulary has 100,000 of them."""
        data, at, end, length_at = self._data, self._at, len(self._data), struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            start = at + 8
            at = start + length_at(data, at)[0]
            if at > end:
                raise struct.error
            strings.append(data[start:at].decode("utf-8", "replace"))
        self._at = at
        return strings

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind in SCALARS:
            return self._scalar(SCALARS[kind])
        if kind != ARRAY:
            raise self._error(f"metadata of unknown type {kind}")
        item, count = self._scalar("I"), self._scalar("Q")
        if count > len(self._data):
            raise struct.error
        if item == STRING:
            return self._strings(count)
        if item not in SCALARS:
            raise self._error(f"metadata array of unknown type {item}")
        return list(self._scalars(SCALARS[item], count))

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type, offset from the start of the tensor data."""
        name, dimensions = self._string(), self._scalar("I")
        if dimensions > MOST_DIMENSIONS:
            raise self._error(f"{name} has {dimensions} dimensions")
        shape = tuple(reversed(self._scalars("Q", dimensions)))  # GGUF has the innermost first
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _placed(self, name: str, shape: tuple[int, ...], type_id: int, offset: int, start: int) -> StoredTensor:
        try:
            kind = GGMLQuantizationType(type_id)
        except ValueError:
            raise self._error(f"{name} has type {type_id}, which the gguf package does not know") from None
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if not shape or shape[-1] % block:
            raise self._error(f"rows of {name} {list(shape)} are not whole {kind.name} blocks of {block}")
        elements = 1
        for length in shape:
            elements *= length
        size = elements // block * block_bytes
        if start + offset + size > len(self._data):
            raise self._error(
                f"the file is truncated: {name} ends at byte {start + offset + size}, the file at {len(self._data)}"
            )
        return StoredTensor(name, kind, shape, start + offset, size)
