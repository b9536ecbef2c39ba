"""The settings a command runs under: command line over file over defaults, with where each value came from.

Knows no command-line library. The machine is handed in.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from ..config import Machine, ServeConfig
from .settings_file import read_settings

UNITS = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


@dataclass(frozen=True, slots=True)
class Settings:
    """A complete config, and for each key its origin: command line, a file's name, default or found."""

    config: ServeConfig
    origins: Mapping[str, str]

    @classmethod
    def settle(cls, given: Mapping[str, Any], file: Path | None, machine: Machine) -> "Settings":
        """Merge what was given (None: not given) over the file, and fill the rest. Raises ConfigError."""
        from_file = read_settings(file) if file else {}
        from_line = {key: value for key, value in given.items() if value is not None}
        chosen = ServeConfig(**{**from_file, **from_line})
        config = chosen.resolved(machine)
        origins = {}
        for key in (each.name for each in fields(ServeConfig)):
            if key in from_line:
                origins[key] = "command line"
            elif key in from_file:
                origins[key] = file.name if file else ""
            else:
                origins[key] = "default" if getattr(chosen, key) == getattr(config, key) else "found"
        return cls(config, origins)

    def table(self, keys: frozenset[str] | None = None) -> str:
        """One line a setting: name, value, origin. `keys` limits it."""
        shown = [each for each in fields(self.config) if keys is None or each.name in keys]
        rows = [(each.name, readable(each, getattr(self.config, each.name)), self.origins[each.name]) for each in shown]
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"  {name:<{wide[0]}}  {value:<{wide[1]}}  {origin}" for name, value, origin in rows)


def readable(setting: Field[Any], value: Any) -> str:
    """A setting's value as a person would write it."""
    if value is None:
        return "none" if setting.metadata.get("file") else str(setting.metadata.get("unset", "the model's"))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if setting.metadata.get("size"):
        return readable_size(value)
    return str(value)


def readable_size(size: int) -> str:
    """268435456 as 256MiB; exact or plain bytes."""
    return next((f"{size // unit}{name}" for name, unit in UNITS if size % unit == 0), str(size))
