"""Which models are served under which names: from the words of a command line, or from the TOML file of `--models`.

[models]
chat = "smollm2"
draft = "/models/draft.gguf"
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..config import ServeConfig
from ..errors import ConfigError
from .settings_file import read_toml

_NAMED = re.compile(r"([\w.:-]{1,100})=(.+)")


def sources_of(words: Sequence[str], config: ServeConfig) -> dict[str, str]:
    """What to serve, by name. Raises ConfigError."""
    if config.models is None:
        if not words:
            raise ConfigError("name a MODEL to serve, or a file of them with --models")
        return models_named(words, config.served_model_name)
    if words or config.served_model_name is not None:
        raise ConfigError("with --models, the file alone names what is served")
    return read_models(Path(config.models))


def models_named(words: Sequence[str], name: str | None = None) -> dict[str, str]:
    """Sources by name. words: one MODEL, served as `name` or as it is called, or NAME=MODELs. Raises ConfigError."""
    if len(words) == 1 and not _NAMED.fullmatch(words[0]):
        return {name or words[0]: words[0]}
    found: dict[str, str] = {}
    for word in words:
        match = _NAMED.fullmatch(word)
        if match is None:
            raise ConfigError(f"of several models each needs a name, as NAME={word}")
        if match[1] in found:
            raise ConfigError(f"two models are named {match[1]}")
        found[match[1]] = match[2]
    if name is not None:
        raise ConfigError("served_model_name is for a MODEL without a name of its own: leave one of them out")
    return found


def read_models(path: Path) -> dict[str, str]:
    """Sources by name out of a file, of which there is one at least. Raises ConfigError naming file and key."""
    table = read_toml(path, "models file")
    models = table.pop("models", None)
    if table:
        raise ConfigError(f"{path}: there is no {next(iter(table))!r} in a models file, only a table [models]")
    if not isinstance(models, Mapping) or not models:
        raise ConfigError(f'{path}: a table [models] must name one model at least, such as chat = "smollm2"')
    for name, source in models.items():
        if not isinstance(source, str) or not source:
            raise ConfigError(f"{path}: models.{name} must be a model's name or path, not {source!r}")
    return dict(models)
