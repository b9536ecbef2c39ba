"""`fairstep models`: what is installed, as a table for people or as JSON. Reads no weights."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..config import EngineConfig
from ..model.installed import Installed, installed

COLUMNS = ("model", "architecture", "parameters", "disk", "context", "weights", "KV memory", "run by")
RIGHT = COLUMNS[2:7]  # numbers
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
REASON_WIDTH = 110


def list_models(paths: Sequence[Path], config: EngineConfig, *, as_json: bool) -> str:
    """What is installed and what it needs under a resolved config."""
    needs = [needed(model, config) for model in installed(paths, config.decoder)]
    return msgspec.json.format(msgspec.json.encode(needs)).decode() if as_json else table(needs, config)


def needed(model: Installed, config: EngineConfig) -> dict[str, Any]:
    """A model and its memory in bytes: its weights, the KV pool, one token in it, and how many tokens that holds."""
    assert config.max_seats, "the config must be resolved"
    pool = config.kv_memory  # None: what a GPU has free
    item = ITEM_BYTES[config.dtype]
    token = None if model.kv_elements is None else model.kv_elements * item
    return {
        "name": model.name,
        "run_by": model.path,
        "why": model.why,
        "architecture": model.architecture,
        "parameters": model.parameters,
        "disk_bytes": model.disk,
        "context": model.context,
        "dtype": config.dtype,
        "weights_bytes": None if model.parameters is None else model.parameters * item,
        "kv_bytes": pool,
        "kv_bytes_token": token,
        "kv_tokens": None if token is None or pool is None else pool // (token * config.page_size) * config.page_size,
        "kv_bytes_least": None if token is None else token * config.page_size * max(2, config.max_seats),
    }


def table(needs: Sequence[dict[str, Any]], config: EngineConfig) -> str:
    """A line a model, reasons under it, then what the memory stands for."""
    rows = [_row(each) for each in needs]
    wide = {name: max(len(row[name]) for row in (*rows, dict(zip(COLUMNS, COLUMNS, strict=True)))) for name in COLUMNS}
    lines = [_line(dict(zip(COLUMNS, COLUMNS, strict=True)), wide)]
    for each, row in zip(needs, rows, strict=True):
        lines.append(_line(row, wide))
        for reason in _reasons(each):
            lines += textwrap.wrap(reason, REASON_WIDTH, initial_indent="  ", subsequent_indent="  ")
    dtype, pool = config.dtype, bytes_as_text(config.kv_memory) if config.kv_memory else "what a GPU has free"
    lines.append(f"\nMemory: weights in {dtype}, plus {pool} for keys and values (--kv-memory), plus libraries.")
    return "\n".join(lines)


def _row(need: dict[str, Any]) -> dict[str, str]:
    tokens = need["kv_tokens"]
    values = (
        need["name"],
        need["architecture"] or "?",
        "?" if need["parameters"] is None else count_as_text(need["parameters"]),
        bytes_as_text(need["disk_bytes"]),
        str(need["context"] or "?"),
        bytes_as_text(need["weights_bytes"]),
        "?" if tokens is None else f"{tokens} tokens",
        need["run_by"],
    )
    return dict(zip(COLUMNS, values, strict=True))


def _reasons(need: dict[str, Any]) -> list[str]:
    reasons = [need["why"]] if need["why"] else []
    if need["kv_bytes_least"] is not None and need["kv_bytes_least"] > need["kv_bytes"]:
        reasons.append(f"needs --kv-memory {need['kv_bytes_least']} or more, or fewer --max-seats")
    return reasons


def _line(row: dict[str, str], wide: dict[str, int]) -> str:
    cells = (row[name].rjust(wide[name]) if name in RIGHT else row[name].ljust(wide[name]) for name in COLUMNS)
    return "  ".join(cells).rstrip()


def count_as_text(count: int) -> str:
    """134515008 as "135 M"."""
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M" if count >= 1e6 else str(count)


def bytes_as_text(size: int | None) -> str:
    """100663296 as "96 MiB"; None is unknown."""
    if size is None:
        return "?"
    for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"
