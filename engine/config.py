"""Every setting, frozen: the same names in Python, on the command line and in a TOML file.

A field left None is filled by `resolved(machine)` from the machine found. Knows no torch: the machine is handed in.
"""

import math
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from .errors import ConfigError
from .fairness.policies import POLICIES
from .fairness.pricing import CostKind
from .machine import Machine as Machine

DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANTIZE = ("auto", "none", "int8", "int4")
COST_KINDS: tuple[CostKind, ...] = ("tokens", "requests", "adaptive")
BATCHINGS = ("continuous", "static", "padded")
DECODERS = ("auto", "fairstep", "transformers")
DEVICES = ("auto", "cpu", "cuda")
ATTENTIONS = ("auto", "triton", "torch")
OVERLAPS = ("auto", "on", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")
MIB = 1024**2
# what fits a CPU
SEATS = 32
STEP_TOKENS = 512
KV_MEMORY = 256 * MIB
# what fits a GPU; keys and values get what is free there
GPU_SEATS = 256
GPU_STEP_TOKENS = 8192
DETERMINISTIC_CHUNK = 256
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*$", re.IGNORECASE)
_SPAN = re.compile(r"^(\d{1,4})(?::(\d{1,4}))?$")
_METRIC_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def option(help: str, default: Any = None, **extra: Any) -> Any:
    """A config field with its help text, which the command line shows."""
    return field(default=default, metadata={"help": help, **extra})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of an engine. Raises ConfigError naming the key."""

    dtype: str = option("Number format of weights and KV: auto, float32, bfloat16 or float16.", "auto", choices=DTYPES)
    quantize: str = option(
        "Integer weights in the C++ step: auto (those that a GGUF file has, as it has them), none, int8 or int4.",
        "auto",
        choices=QUANTIZE,
    )
    decoder: str = option(
        "What computes the model: fairstep's decoder, transformers' own code (slower), or auto: ours where it can.",
        "auto",
        choices=DECODERS,
    )
    device: str = option(
        "Where the model is computed: cpu, cuda (a GPU of NVIDIA or AMD), or auto: a GPU where torch finds one.",
        "auto",
        choices=DEVICES,
    )
    attention: str = option(
        "What computes attention: triton (our kernels for GPUs), torch, or auto: triton on a GPU, else torch.",
        "auto",
        choices=ATTENTIONS,
    )
    overlap: str = option(
        "Whether a step is launched before the last one is known: on, off, or auto: where a GPU computes.",
        "auto",
        choices=OVERLAPS,
    )
    step_tokens: int | None = option("Most tokens computed in one step (default 512 on a CPU, 8192 on a GPU).")
    max_seats: int | None = option("Most sequences running at once (default 32 on a CPU, 256 on a GPU).")
    kv_memory: int | None = option(
        "Memory for keys and values, in bytes or like 256MiB (default 256MiB on a CPU, what is free on a GPU).",
        size=True,
    )
    page_size: int = option("Tokens in a page of KV memory.", 16)
    max_model_len: int | None = option("Longest prompt plus answer, in tokens (default: the model's own).")
    inter_token_target_ms: float | Literal["auto"] = option(
        "Most a step may take beside running streams, in ms; auto: 2.5 times what they take alone, 3 below 50 ms.",
        "auto",
    )
    chunk: int | None = option("Most prompt tokens of one sequence in a step (default 256 under --deterministic).")
    deterministic: bool = option(
        "Cut prompts at fixed chunks, so that a request's steps never depend on others.", False
    )
    prefix_cache: bool = option("Keep computed pages for prompts that begin the same.", True)
    fairness: str = option(
        "Who goes next: drr (tenants by turns, in tokens; shares while they run), vtc, vtc-ema or fcfs.",
        "drr",
        choices=POLICIES,
    )
    cost_model: str = option(
        "What a request costs its tenant: tokens, requests, or adaptive (tokens by the time that they take).",
        "tokens",
        choices=COST_KINDS,
    )
    quantum: int | Literal["auto"] | None = option(
        "What a tenant of weight 1 gets a round under drr, in prompt tokens (default 500; requests: 1; for each "
        "sequence of a static batch); auto follows what requests cost.",
        unset="about a request",
    )
    batching: str = option(
        "How sequences join: continuous (whenever there is room), static (batches that nobody joins), or padded "
        "(static, and all computed as long as the longest: for comparison).",
        "continuous",
        choices=BATCHINGS,
    )
    batch_size: int | None = option("Sequences of a full static batch (default: all seats).", unset="all seats")
    batch_delay_ms: float = option("Most that a static batch waits for more to come, in ms.", 20.0)
    batch_compute_ms: float | None = option(
        "What a static batch takes at least, in ms: who cannot be in time any more expires (default: as measured, and "
        "nobody expires before the deadline).",
        unset="as measured",
    )
    workers: int | str = option(
        "Worker processes, each with the model and its own memory for keys and values: N, or MIN:MAX, of which as many "
        "run as what waits asks for.",
        1,
        span=True,
    )
    spare: bool = option("Load one more worker, which waits to take the place of one that dies.", False)
    worker_timeout: float = option(
        "Seconds without a sign of life from a worker that has work, after which it is ended and started again.", 60.0
    )
    max_attempts: int = option("Most times that a request is computed alone when its worker dies.", 2)
    threads: int | None = option("Compute threads of each worker (default: the cores found, shared out).")

    def __post_init__(self) -> None:
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("quantize", self.quantize, QUANTIZE)
        _check_choice("decoder", self.decoder, DECODERS)
        _check_choice("device", self.device, DEVICES)
        _check_choice("attention", self.attention, ATTENTIONS)
        _check_choice("overlap", self.overlap, OVERLAPS)
        object.__setattr__(self, "kv_memory", parse_size("kv_memory", self.kv_memory))
        _check_choice("fairness", self.fairness, POLICIES)
        _check_choice("cost_model", self.cost_model, COST_KINDS)
        _check_choice("batching", self.batching, BATCHINGS)
        for name in (
            "step_tokens",
            "max_seats",
            "page_size",
            "max_model_len",
            "chunk",
            "threads",
            "batch_size",
        ):
            check_positive(name, getattr(self, name))
        if self.quantum != "auto":
            _check_quantum(self.quantum)
        _check_milliseconds("batch_delay_ms", self.batch_delay_ms)
        if self.batch_compute_ms is not None:
            _check_milliseconds("batch_compute_ms", self.batch_compute_ms)
        check_positive("kv_memory", self.kv_memory)
        for name in ("deterministic", "prefix_cache", "spare"):
            _check_bool(name, getattr(self, name))
        check_positive("max_attempts", 0 if self.max_attempts is None else self.max_attempts)
        _check_seconds("worker_timeout", self.worker_timeout)
        if self.worker_span[1] > 1 and self.batching != "continuous":
            raise ConfigError(f"workers is {self.workers}, but batching {self.batching} is that of one worker")
        self._check_target()

    @property
    def worker_span(self) -> tuple[int, int]:
        """The fewest and the most workers."""
        match = _SPAN.match(str(self.workers))
        least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if isinstance(self.workers, bool) or not 1 <= least <= most:
            raise ConfigError(f"workers must be a positive number, or two such as 1:4, not {self.workers!r}")
        return least, most

    def _check_target(self) -> None:
        target = self.inter_token_target_ms
        if target == "auto":
            return
        if isinstance(target, bool) or not isinstance(target, int | float) or not math.isfinite(target) or target <= 0:
            raise ConfigError(f"inter_token_target_ms must be 'auto' or a positive number of ms, not {target!r}")

    def resolved(self, machine: Machine) -> Self:
        """Fill what was left open for this machine, and check what belongs together. Pure.

        kv_memory stays None on a GPU: what is free shows once the model is there.
        """
        gpu = self._on_gpu(machine)
        seats = self.max_seats or (GPU_SEATS if gpu else SEATS)
        chunk = self.chunk or (DETERMINISTIC_CHUNK if self.deterministic else None)
        beside = seats - 1 + chunk if chunk and self.deterministic else seats  # a whole chunk beside the decodes
        tokens = self.step_tokens or max(GPU_STEP_TOKENS if gpu else STEP_TOKENS, beside)
        full = replace(
            self,
            dtype=self._dtype(machine),
            max_seats=seats,
            step_tokens=tokens,
            chunk=chunk or tokens,
            kv_memory=self.kv_memory or (None if gpu else KV_MEMORY),
            threads=self.threads or max(1, machine.cores // self.worker_span[1]),
        )
        full._check_together()
        return full

    def _dtype(self, machine: Machine) -> str:
        if self.dtype != "auto":
            return self.dtype
        integers = self.quantize in ("int8", "int4")  # which go with bfloat16 whatever the CPU multiplies
        return "bfloat16" if machine.bfloat16 or integers or self._on_gpu(machine) else "float32"

    def _on_gpu(self, machine: Machine) -> bool:
        return self.device == "cuda" or (self.device == "auto" and machine.gpu)

    def _check_together(self) -> None:
        assert self.step_tokens and self.max_seats and self.chunk
        if self.quantize in ("int8", "int4") and self.dtype != "bfloat16":
            raise ConfigError(
                f"quantize {self.quantize} goes with dtype bfloat16, not {self.dtype}: leave one of them at auto"
            )
        if self.overlap == "on" and self.batching != "continuous":
            raise ConfigError(f"overlap on excludes batching {self.batching}: nobody joins a batch that is under way")
        if self.deterministic and self.batching == "padded":
            raise ConfigError("batching padded excludes deterministic: prompts are not cut at fixed places")
        if self.batch_size is not None and self.batch_size > self.max_seats:
            raise ConfigError(f"batch_size ({self.batch_size}) must be at most max_seats ({self.max_seats})")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig(EngineConfig):
    """An engine's settings and its server's. Raises ConfigError naming the key."""

    host: str = option("Address to listen on.", "127.0.0.1")
    port: int = option("Port to listen on; 0 takes any free one.", 8000)
    served_model_name: str | None = option("Name clients ask for (default: MODEL as given).")
    models: str | None = option("TOML file that names the models, instead of MODEL; read again on SIGHUP.", file=True)
    metrics_prefix: str = option("First part of each metric's name.", "fairstep")
    metrics_tenants: int = option("Most tenants that metrics name; the rest are counted together, as `other`.", 100)
    max_body: int = option("Largest request body.", 8 * MIB, size=True)
    tenants: str | None = option("TOML file that says who may use the server, and on what terms.", file=True)
    max_queue: int = option("Most sequences that may wait.", 2000)
    max_queue_tokens: int | None = option("Most prompt tokens that may wait (default: no limit).", unset="no limit")
    max_queue_bytes: int | None = option(
        "Most bytes of request bodies that may wait (default: no limit).", size=True, unset="no limit"
    )
    way_in_ms: float = option("What a request takes to the server, in ms: it is taken off deadlines.", 0.0)
    way_out_ms: float = option("What an answer takes back to the client, in ms: the same.", 0.0)
    limits_store: str | None = option(
        "SQLite file that keeps counts of a month over a restart (default: none does).", file=True
    )
    state: str | None = option(
        "Folder that keeps answers by key, responses, files and batches over a restart (default: none does).",
        file=True,
    )
    answers_kept: int = option("Most bytes of answers kept for idempotency keys.", 256 * MIB, size=True)
    drain_seconds: float = option("Seconds that answers under way may go on after SIGTERM or SIGINT.", 10.0)
    in_process: bool = option("Run the step loop in a thread of this process: slower, one process.", False)
    log_level: str = option("Least severe messages shown: debug, info, warning or error.", "info", choices=LOG_LEVELS)

    def __post_init__(self) -> None:
        EngineConfig.__post_init__(self)  # a slotted dataclass has no zero-argument super()
        object.__setattr__(self, "max_body", parse_size("max_body", self.max_body) or 0)
        object.__setattr__(self, "max_queue_bytes", parse_size("max_queue_bytes", self.max_queue_bytes))
        object.__setattr__(self, "answers_kept", parse_size("answers_kept", self.answers_kept) or 0)
        for name in ("max_body", "max_queue_tokens", "max_queue_bytes", "answers_kept"):
            check_positive(name, getattr(self, name))
        for name in ("way_in_ms", "way_out_ms"):
            _check_milliseconds(name, getattr(self, name))
        _check_seconds("drain_seconds", self.drain_seconds)
        check_positive("max_queue", 0 if self.max_queue is None else self.max_queue)
        check_positive("metrics_tenants", 0 if self.metrics_tenants is None else self.metrics_tenants)
        _check_choice("log_level", self.log_level, LOG_LEVELS)
        _check_bool("in_process", self.in_process)
        _check_text("host", self.host)
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be an integer from 0 to 65535, not {self.port!r}")
        for name in ("served_model_name", "tenants", "limits_store", "state"):
            if getattr(self, name) is not None:
                _check_text(name, getattr(self, name))
        _check_text("metrics_prefix", self.metrics_prefix)
        if not _METRIC_PREFIX.fullmatch(self.metrics_prefix):
            raise ConfigError(f"metrics_prefix must be letters, digits and _, not {self.metrics_prefix!r}")

    def engine(self) -> EngineConfig:
        """The engine's part alone."""
        return EngineConfig(**{f.name: getattr(self, f.name) for f in fields(EngineConfig)})


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


def _check_quantum(value: object) -> None:
    if isinstance(value, str):
        raise ConfigError(f"quantum must be 'auto' or a positive integer, not {value!r}")
    check_positive("quantum", value)


def _check_milliseconds(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        raise ConfigError(f"{name} must be a number of ms, 0 or more, not {value!r}")


def _check_seconds(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type,operator]
        raise ConfigError(f"{name} must be a positive number of seconds, not {value!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false, not {value!r}")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ConfigError(f"{name} must be a non-empty line of text, not {value!r}")
