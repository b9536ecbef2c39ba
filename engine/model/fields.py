"""Checked reading of a file's keys: each method returns a value of the right kind or names file and key in an error.

Knows no file format: it is handed a mapping. None counts as absent.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError

MOST = 2**31 - 1
MOST_SHOWN = 300  # characters
MOST_LAYERS = 4096  # names are listed for each layer before a file is asked for them


class NotOurs(ModelError):
    """The config is sound, but asks for what fairstep's own decoder doesn't have."""


class Fields:
    """The keys of `values`, read from `file`; `prefix` is put before a key, in reading and in errors."""

    def __init__(self, values: Mapping[str, Any], file: Path, prefix: str = "") -> None:
        self.file = file
        self._values = values
        self._prefix = prefix

    def get(self, key: str) -> Any:
        return self._values.get(self._prefix + key)

    def has(self, key: str) -> bool:
        return self.get(key) is not None

    def error(self, key: str, problem: str) -> ModelError:
        return ModelError(f"{self.file}: {self._prefix}{key} {one_line(problem)}")

    def not_ours(self, key: str, problem: str) -> NotOurs:
        return NotOurs(str(self.error(key, problem)))

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = MOST) -> int:
        value = self._or_default(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, f"must be an integer from {low} to {high}, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None, *, zero: bool = False) -> float:
        """A finite number above 0; with `zero` that one too."""
        value = self._or_default(key, default)
        if not is_number(value) or value < 0 or (value == 0 and not zero):
            raise self.error(key, f"must be a number {'of at least' if zero else 'above'} 0, not {value!r}")
        return float(value)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of `count` finite numbers above 0."""
        values = self.get(key)
        if not isinstance(values, list) or len(values) != count or not all(is_number(v) and v > 0 for v in values):
            raise self.error(key, f"must be a list of {count} numbers above 0, not {values!r}")
        return tuple(map(float, values))

    def integers(self, key: str, count: int) -> tuple[int, ...]:
        """A list of `count` integers."""
        values = self.get(key)
        if not isinstance(values, list) or len(values) != count or not all(type(value) is int for value in values):
            raise self.error(key, f"must be a list of {count} integers, not {values!r}")
        return tuple(values)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._or_default(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._or_default(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a string, not {value!r}")
        return value

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """One id or a list of ids, each inside the vocabulary; () when absent."""
        value = self.get(key)
        ids = () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
                raise self.error(key, f"must be token ids below the vocabulary of {vocab_size}, not {token!r}")
        return ids

    def sampling(self, names: Mapping[str, str]) -> dict[str, float]:
        """Sampling defaults: `names` maps keys here to SamplingParams' names. Only those that are present."""
        limits = {
            "temperature": (0.0, 100.0),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "top_k": (-1, math.inf),
            "repetition_penalty": (0.01, 100.0),  # as SamplingParams has it
        }
        found: dict[str, float] = {}
        for key, name in names.items():
            value, (low, high) = self.get(key), limits[name]
            if value is None:
                continue
            wrong_kind = not is_number(value) or (name == "top_k" and value != int(value))
            if wrong_kind or not low <= value <= high or (name == "top_p" and value == 0):
                raise self.error(key, f"is no {name} to sample with: {value!r}")
            found[name] = int(value) if name == "top_k" else float(value)
        return found

    def _or_default(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is None and default is None:
            raise self.error(key, "is missing")
        return default if value is None else value


def one_line(text: str) -> str:
    """Text with a file's own words in it, fit to be shown: one line, printable, not long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 2 * MOST_SHOWN]).split())
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}..."


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelError when it is missing or something else."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # also undecodable bytes
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value
