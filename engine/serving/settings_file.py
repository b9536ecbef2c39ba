"""The TOML file of `--config`: the same keys as the config's fields, at the top level. Knows no command line."""

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..config import ServeConfig
from ..errors import ConfigError


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, checked one by one. Raises ConfigError naming the file and the key."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(f"config file {path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"config file {path} is not TOML: {problem}") from None
    known = [each.name for each in fields(ServeConfig)]
    for key in values:
        if key not in known:
            raise ConfigError(f"{path}: there is no setting {key!r}; {_near(key, known)}")
    try:
        ServeConfig(**values)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from None
    return values


def _near(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key.replace("-", "_").lower(), known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(known))}"
