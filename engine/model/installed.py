"""The models on this machine and what each is, from configs and headers alone: no torch, no weights read."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import ModelError
from .fields import Fields, NotOurs, read_json
from .loading import read_spec
from .sources import ALIASES, CONFIG_FILE, GGUF_SUFFIX, Source, hub_folders, resolve
from .spec import ModelSpec
from .tensor_shapes import tensor_shapes

ComputedBy = Literal["fairstep", "transformers", "refused"]

DEPTH = 4  # folders below a given one that are looked into
DECODERS = ("ForCausalLM", "LMHeadModel")  # how transformers names what it may run
WEIGHT_FILES = "*.safetensors"
INDEX_FILE = "model.safetensors.index.json"
# what transformers' configs call these, by their age
LAYERS, HEADS = ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head")
HIDDEN, CONTEXT = ("hidden_size", "n_embd"), ("max_position_embeddings", "n_positions")
LONGEST_HEADER = 100 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A model, by the name to pass. What is unknown is None.

    disk: bytes. kv_elements: keys and values of one token, over all layers.
    path: what would run it; `why`: for "refused" the reason, for "transformers" what our decoder lacks.
    """

    name: str
    path: ComputedBy
    why: str = ""
    disk: int = 0
    architecture: str | None = None
    parameters: int | None = None
    context: int | None = None
    kv_elements: int | None = None


def installed(paths: Sequence[Path] = (), decoder: str = "auto") -> Iterator[Installed]:
    """Aliases, then Hugging Face's cache, then what lies in `paths`: models, or folders with models in them.

    decoder: as in EngineConfig.
    """
    for alias in ALIASES:
        try:
            yield examined(resolve(alias), decoder)
        except ModelError as problem:
            yield Installed(name=alias, path="refused", why=str(problem))
    for name, folder in hub_folders():
        yield examined(Source("directory", folder, name), decoder)
    for path in paths:
        found = list(_models_in(path, DEPTH))
        yield from (examined(source, decoder) for source in found)
        if not found:
            yield Installed(name=str(path), path="refused", why=f"no .gguf file and no folder with {CONFIG_FILE} there")


def examined(source: Source, decoder: str = "auto") -> Installed:
    """What the model at `source` is and whether it would run."""
    disk = _size(source.path)
    try:
        if decoder == "transformers":
            raise NotOurs(f"decoder is {decoder}")
        spec = read_spec(source)
        if source.kind == "directory":
            _stored_elements(source.path)  # refuses what has no weights
    except NotOurs as lack:
        if decoder == "fairstep" or source.kind != "directory":
            return Installed(name=source.name, path="refused", why=str(lack), disk=disk)
        return _through_transformers(source, disk, str(lack))
    except ModelError as problem:
        return Installed(name=source.name, path="refused", why=str(problem), disk=disk)
    return Installed(
        name=source.name,
        path="fairstep",
        disk=disk,
        architecture=spec.architecture,
        parameters=_parameters(spec),
        context=spec.context,
        kv_elements=sum(layer.elements for layer in spec.kv_layers),
    )


def _through_transformers(source: Source, disk: int, lack: str) -> Installed:
    """A model that our decoder leaves to transformers. Whether that runs it shows for certain when it loads."""
    try:
        config = Fields(read_json(source.path / CONFIG_FILE), source.path / CONFIG_FILE)
        architecture = _architecture(config)
        parameters = _stored_elements(source.path)
    except ModelError as problem:
        return Installed(name=source.name, path="refused", why=str(problem), disk=disk)
    return Installed(
        name=source.name,
        path="transformers",
        why=lack,
        disk=disk,
        architecture=architecture,
        parameters=parameters,
        context=_first(config, CONTEXT),
        kv_elements=_kv_elements(config),
    )


def _architecture(config: Fields) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not str(names[0]).endswith(DECODERS):
        raise config.error("architectures", f"is {names!r}, which is no causal language model: only those are served")
    return str(names[0])


def _kv_elements(config: Fields) -> int | None:
    """Keys and values of one token, where the config has the usual keys."""
    layers, heads, hidden = _first(config, LAYERS), _first(config, HEADS), _first(config, HIDDEN)
    if not (layers and heads and hidden):
        return None
    kv_heads = _whole(config.get("num_key_value_heads")) or heads
    return layers * kv_heads * 2 * (_whole(config.get("head_dim")) or hidden // heads)


def _first(config: Fields, keys: Sequence[str]) -> int | None:
    return next((number for key in keys if (number := _whole(config.get(key)))), None)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _parameters(spec: ModelSpec) -> int:
    return sum(math.prod(shape) for shape in tensor_shapes(spec).values())


def _models_in(path: Path, depth: int) -> Iterator[Source]:
    """The model at `path`, or those below it; hidden folders are left out."""
    if path.is_file():
        if path.name.endswith(GGUF_SUFFIX):
            yield Source("gguf", path, str(path))
    elif (path / CONFIG_FILE).is_file():
        yield Source("directory", path, str(path))
    elif depth:
        try:
            entries = sorted(each for each in path.iterdir() if not each.name.startswith("."))
        except OSError:  # not ours to read
            return
        for each in entries:
            yield from _models_in(each, depth - 1)


def _size(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; links (Hugging Face's cache is made of them) are followed."""
    files = [path] if path.is_file() else [each for each in path.iterdir() if each.is_file()]
    return sum(each.stat().st_size for each in files)


def _stored_elements(directory: Path) -> int:
    """Elements of all tensors in a folder's safetensors files, by their headers. Raises ModelError."""
    files, index = sorted(directory.glob(WEIGHT_FILES)), directory / INDEX_FILE
    if not files:
        raise ModelError(f"{directory} has no {WEIGHT_FILES} file: its weights are missing or of another format")
    if index.is_file():
        named = read_json(index).get("weight_map")
        files = sorted({directory / str(name) for name in named.values()}) if isinstance(named, dict) else files
    return sum(math.prod(shape) for file in files for shape in _shapes(file))


def _shapes(file: Path) -> Iterator[list[int]]:
    """Format: 8 bytes with the header's length, then the header in JSON (github.com/huggingface/safetensors)."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header: Any = json.loads(opened.read(length)) if length < LONGEST_HEADER else None
        for name, tensor in header.items():
            if name != "__metadata__":
                yield tensor["shape"]
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as problem:
        raise ModelError(f"{file} is not a whole safetensors file: its header cannot be read") from problem
