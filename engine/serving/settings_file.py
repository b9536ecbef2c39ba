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
    values = read_toml(path, "config file")
    known = [each.name for each in fields(ServeConfig)]
    for key in values:
        if key not in known:
            raise ConfigError(f"{path}: there is no setting {key!r}; {near(key, known)}")
    try:
        ServeConfig(**values)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from None
    return values


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file's values. Raises ConfigError that begins with `what` and the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(f"{what} {path} cannot be read: {problem.strerror}") from None
    except ValueError as problem:  # wrong TOML, wrong UTF-8, a number too long to read
        raise ConfigError(f"{what} {path} is not TOML: {problem}") from None


def near(key: str, known: Iterable[str]) -> str:
    """Which names may have been meant."""
    close = difflib.get_close_matches(key.replace("-", "_").lower(), known, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(sorted(known))}"
