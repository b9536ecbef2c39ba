"""Every setting, frozen: the same names in Python, on the command line and in a TOML file.

A field left None is filled by `resolved(machine)` from the machine found. Knows no torch: the machine is handed in.
"""

import math
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "float16")
DETERMINISTIC_CHUNK = 256
MIB = 1024**2
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found: physical cores usable by this process, and whether a CUDA device is there."""

    cores: int = 2
    cuda: bool = False
    bfloat16: bool = False  # the CPU multiplies bfloat16 natively

    @classmethod
    def found(cls) -> "Machine":
        """Look at this machine without importing torch."""
        flags = _cpu_flags()
        return cls(
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1),
            cuda=os.path.exists("/dev/nvidia0"),
            bfloat16="avx512_bf16" in flags or "amx_bf16" in flags,
        )


def option(help: str, default: Any = None, **extra: Any) -> Any:
    """A config field with its help text, which the command line shows."""
    return field(default=default, metadata={"help": help, **extra})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of an engine. Raises ConfigError naming the key."""

    dtype: str = option("Number format of weights and KV: auto, float32, bfloat16 or float16.", "auto")
    step_tokens: int | None = option("Most tokens computed in one step (default 512 on a CPU).")
    max_seats: int | None = option("Most sequences running at once (default 32 on a CPU).")
    kv_memory: int | None = option("Memory for keys and values, in bytes or like 256MiB.", size=True)
    page_size: int = option("Tokens in a page of KV memory.", 16)
    max_model_len: int | None = option("Longest prompt plus answer, in tokens (default: the model's own).")
    inter_token_target_ms: float | Literal["auto"] = option(
        "Most a step may take beside running streams, in ms; auto is 2.5 times the modelled decode-only cost.", "auto"
    )
    chunk: int | None = option("Most prompt tokens of one sequence in a step (default 256 under --deterministic).")
    deterministic: bool = option("Cut prompts at fixed chunks, so that a request's steps never depend on others.", False)
    prefix_cache: bool = option("Keep computed pages for prompts that begin the same.", True)
    workers: int = option("Worker processes (only 1 for now).", 1)
    threads: int | None = option("Compute threads of the worker (default: the cores found).")

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")
        object.__setattr__(self, "kv_memory", parse_size("kv_memory", self.kv_memory))
        for name in ("step_tokens", "max_seats", "kv_memory", "page_size", "max_model_len", "chunk", "threads"):
            check_positive(name, getattr(self, name))
        if self.workers != 1:
            raise ConfigError(f"workers must be 1, not {self.workers!r}: one worker process is all there is so far")
        self._check_target()

    def _check_target(self) -> None:
        target = self.inter_token_target_ms
        if target == "auto":
            return
        if isinstance(target, bool) or not isinstance(target, int | float) or not math.isfinite(target) or target <= 0:
            raise ConfigError(f"inter_token_target_ms must be 'auto' or a positive number of ms, not {target!r}")

    def resolved(self, machine: Machine) -> "EngineConfig":
        """Fill what was left open for this machine, and check what belongs together. Pure."""
        seats = self.max_seats or (256 if machine.cuda else 32)
        tokens = self.step_tokens or max(8192 if machine.cuda else 512, seats)
        chunk = self.chunk or (DETERMINISTIC_CHUNK if self.deterministic else tokens)
        full = replace(
            self,
            dtype=self._dtype(machine),
            max_seats=seats,
            step_tokens=tokens,
            chunk=min(chunk, tokens) if self.chunk is None else chunk,
            kv_memory=self.kv_memory or (4096 if machine.cuda else 256) * MIB,
            threads=self.threads or machine.cores,
        )
        full._check_together()
        return full

    def _dtype(self, machine: Machine) -> str:
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if machine.cuda or machine.bfloat16 else "float32"

    def _check_together(self) -> None:
        assert self.step_tokens and self.max_seats and self.chunk
        if self.step_tokens < self.max_seats:
            raise ConfigError(
                f"step_tokens ({self.step_tokens}) must be at least max_seats ({self.max_seats}): every running "
                "sequence needs one token a step"
            )
        if self.deterministic and self.chunk + self.max_seats - 1 > self.step_tokens:
            raise ConfigError(
                f"with deterministic, step_tokens ({self.step_tokens}) must hold a whole chunk beside the decodes: "
                f"at least chunk + max_seats - 1 = {self.chunk + self.max_seats - 1}"
            )


def parse_size(name: str, value: object) -> int | None:
    """Bytes from 268435456, "256MiB", "1.5GB" (decimal) or None. Raises ConfigError."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    match = _SIZE.match(value) if isinstance(value, str) else None
    if not match:
        raise ConfigError(f"{name} must be a size such as 268435456 or 256MiB, not {value!r}")
    unit = match[2].lower()
    power = " kmgt".index(unit[0]) if unit[:1] in ("k", "m", "g", "t") and unit else 0
    return int(float(match[1]) * (1024 if "i" in unit else 1000) ** power)


def check_positive(name: str, value: object) -> None:
    """None or a positive integer, else ConfigError."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a positive integer, not {value!r}")


def _cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("flags"):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()
