"""From a model's name and resolved settings to a runner ready to step. The one place where the parts are joined."""

import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..clock import Clock, MonotonicClock
from ..config import EngineConfig
from ..door import Ready
from ..errors import ConfigError
from ..stepping.settings import StepSettings
from .backend import TorchBackend
from .decoder import Decoder
from .kv import KVMemory, pages_for
from .loading import load, read_spec
from .runner import TorchRunner
from .sources import resolve
from .spec import ModelSpec

Progress = Callable[[str, float], None]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(slots=True)
class Stopwatch:
    """Seconds by part, from one part's end to the next."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)
    last: float = 0.0

    def __post_init__(self) -> None:
        self.last = self.clock.now()

    def lap(self, part: str) -> None:
        now = self.clock.now()
        self.seconds[part] = now - self.last
        self.last = now


def build_runner(
    model: str, config: EngineConfig, progress: Progress, clock: Clock | None = None
) -> tuple[TorchRunner, StepSettings, Ready]:
    """Load `model` (alias, directory, .gguf file or hub id) under a resolved config.

    `progress` hears what is done and the done part. Sets torch's thread count for the whole process.
    Raises ModelError or ConfigError.
    """
    assert config.threads, "the config must be resolved"
    watch = Stopwatch(clock or MonotonicClock())
    torch.set_num_threads(config.threads)
    device = torch.device("cpu")
    dtype = usable_dtype(config.dtype)
    source = resolve(model)
    spec = read_spec(source)
    settings, notes = step_settings(spec, config, dtype)  # before the weights: a wrong setting shows at once
    watch.lap("config")
    loaded = load(source, dtype, device, progress)
    parameters = sum(tensor.numel() for tensor in loaded.tensors.values())
    watch.lap("weights")
    kv = KVMemory(spec, pages=settings.pages, page_size=settings.page_size, dtype=dtype, device=device)
    decoder = Decoder(loaded.spec, loaded.tensors, TorchBackend(kv))
    release_memory()
    watch.lap("decoder")
    runner = TorchRunner(decoder, kv)
    runner.warm_up()
    watch.lap("warm up")
    if torch.cuda.is_available():
        notes = (*notes, "a CUDA device is present but not used: this version computes on the CPU")
    return runner, settings, _ready(model, loaded.spec, settings, dtype, device, parameters, watch.seconds, notes)


def step_settings(spec: ModelSpec, config: EngineConfig, dtype: torch.dtype) -> tuple[StepSettings, tuple[str, ...]]:
    """The step loop's numbers for this model, and notes for people on what limits them. Raises ConfigError."""
    assert config.kv_memory and config.max_seats and config.step_tokens and config.chunk, "the config must be resolved"
    pages = pages_for(spec, kv_memory=config.kv_memory, page_size=config.page_size, seats=config.max_seats, dtype=dtype)
    context, notes = _context(spec, config.max_model_len, pages * config.page_size)
    target = config.inter_token_target_ms
    settings = StepSettings(
        step_tokens=config.step_tokens,
        seats=config.max_seats,
        pages=pages,
        page_size=config.page_size,
        chunk=config.chunk,
        context=context,
        deterministic=config.deterministic,
        inter_token_target=None if target == "auto" else target / 1000,
        prefix_cache=config.prefix_cache,
    )
    return settings, notes


def usable_dtype(name: str) -> torch.dtype:
    """The torch dtype of a resolved setting. Raises ConfigError where this torch cannot compute with it."""
    dtype = DTYPES[name]
    probe = torch.ones(2, 2, dtype=dtype)
    try:
        torch.nn.functional.scaled_dot_product_attention(probe[None], probe[None], probe[None])
        torch.nn.functional.linear(probe, probe)
    except RuntimeError as error:
        raise ConfigError(
            f"dtype {name} cannot be computed with on this CPU by torch {torch.__version__}: use float32 ({error})"
        ) from error
    return dtype


def release_memory() -> None:
    """Give what loading left behind back to the system."""
    gc.collect()
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        except (OSError, AttributeError):  # another C library
            return


def _context(spec: ModelSpec, asked: int | None, pool: int) -> tuple[int, tuple[str, ...]]:
    """The longest sequence served, and what to tell if that is not what one would expect."""
    wanted = min(spec.context, asked or spec.context)
    notes = []
    if asked and asked > spec.context:
        notes.append(f"max_model_len is {asked}, but the model's context is {spec.context}: {wanted} is used")
    if pool < wanted:
        notes.append(f"the KV pool holds {pool} tokens, so the context is {pool} instead of {wanted}: raise kv_memory")
    return min(wanted, pool), tuple(notes)


def _ready(
    model: str,
    spec: ModelSpec,
    settings: StepSettings,
    dtype: torch.dtype,
    device: torch.device,
    parameters: int,
    seconds: dict[str, float],
    notes: tuple[str, ...],
) -> Ready:
    return Ready(
        model=model,
        architecture=spec.architecture,
        vocab_size=spec.vocab_size,
        context=settings.context,
        eos_ids=spec.eos_ids,
        defaults=spec.defaults,
        pages=settings.pages,
        page_size=settings.page_size,
        seats=settings.seats,
        dtype=str(dtype).removeprefix("torch."),
        device=device.type,
        parameters=parameters,
        seconds=seconds,
        notes=notes,
        prefix_cache=settings.prefix_cache,
    )
