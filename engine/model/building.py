"""From a model's name and resolved settings to a runner ready to step. The one place where the parts are joined."""

import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from ..clock import Clock, MonotonicClock
from ..config import EngineConfig
from ..door import Ready
from ..errors import ConfigError, ModelError
from ..kernels.cpu.build import CannotBuild
from ..kernels.cpu.library import Library, best_library
from ..machine import cpu_flags
from ..stepping.settings import StepSettings
from .backend import TorchBackend
from .cpu_decoder import CpuDecoder, cannot_compute
from .decoder import Decoder
from .fields import NotOurs
from .kv import KVMemory, pages_for
from .loading import WEIGHTS, load, read_spec
from .runner import CausalModel, TorchRunner
from .sources import Source, resolve
from .spec import LayerShape, ModelSpec, RopeSpec

Progress = Callable[[str, float], None]
COMPILING = "compiling the C++ step, once for this machine"

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
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self.last
        self.last = now


class Served(Protocol):
    """What serving needs to know of a model, whichever path computes it: ModelSpec or TransformersSpec."""

    @property
    def architecture(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def eos_ids(self) -> tuple[int, ...]: ...
    @property
    def defaults(self) -> dict[str, float]: ...
    @property
    def kv_layers(self) -> tuple[LayerShape, ...]: ...


@dataclass(frozen=True, slots=True)
class Built:
    """A model over pages. path, weights: Ready's."""

    path: str
    spec: Served
    model: CausalModel
    kv: KVMemory
    settings: StepSettings
    parameters: int
    notes: tuple[str, ...]
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Builder:
    """Loads a model by either path, and lays out its pages."""

    config: EngineConfig
    dtype: torch.dtype
    device: torch.device
    progress: Progress
    watch: Stopwatch

    def build(self, source: Source) -> Built:
        """By the path that the config asks for; auto: by our decoder where it can. Raises ModelError or ConfigError."""
        asked = self.config.decoder
        if asked == "transformers":
            return self.by_transformers(source, f"decoder is {asked}")
        try:
            spec = read_spec(source)
        except NotOurs as error:
            if asked == "fairstep" or source.kind != "directory":
                raise
            return self.by_transformers(source, str(error))
        return self.by_fairstep(source, spec)

    def by_fairstep(self, source: Source, spec: ModelSpec) -> Built:
        settings, notes = step_settings(spec, self.config, self.dtype, spec.rope)  # a wrong setting shows at once
        self.watch.lap("config")
        library, reason = self._library(spec)
        self.watch.lap("decoder")
        quantize = self._quantize(library)
        keep_blocks = library is not None and quantize != "none"
        loaded = load(source, self.dtype, self.device, self.progress, keep_blocks=keep_blocks)
        parameters = loaded.parameters
        self.watch.lap("weights")
        kv = self._pages(loaded.spec, settings)
        if library is None:
            decoder = Decoder(loaded.spec, loaded.tensors, TorchBackend(kv))
            return Built("fairstep", loaded.spec, decoder, kv, settings, parameters, (*notes, *self._lost(reason)))
        threads = self.config.threads or 1
        model = CpuDecoder(loaded.spec, loaded.tensors, kv, library, threads, loaded.blocks, quantize)
        path = f"cpu:{library.level.name}"
        return Built(path, loaded.spec, model, kv, settings, parameters, notes, model.weights)

    def _library(self, spec: ModelSpec) -> tuple[Library | None, str]:
        """The C++ step where it can compute the model, which is in bfloat16; else why not."""
        reason = cannot_compute(spec, self.config.page_size, self.dtype)
        if reason is not None:
            return None, reason
        try:
            return best_library(cpu_flags(), lambda: self.progress(COMPILING, 0.0)), ""
        except CannotBuild as error:
            return None, str(error)

    def _quantize(self, library: Library | None) -> str:
        """The config's, where auto is none without instructions that make integers faster than bfloat16."""
        plain = library is None or not library.level.needs
        return "none" if plain and self.config.quantize == "auto" else self.config.quantize

    def _lost(self, reason: str) -> tuple[str, ...]:
        """Notes on what torch does less well. Nothing is lost in formats that are torch's anyway."""
        if self.dtype is not torch.bfloat16:
            return ()
        return (f"computed by torch, which is slower than fairstep's C++ step{self._whole()}: {reason}",)

    def _whole(self) -> str:
        """What a note on another path adds."""
        return ", and not with integer weights" if self.config.quantize in ("int8", "int4") else ""

    def by_transformers(self, source: Source, reason: str) -> Built:
        """`reason`: why not by our decoder."""
        if source.kind != "directory":
            raise ModelError(f"{source.path}: transformers' own code takes a model directory, not a {source.kind} file")
        # a second's imports, which our own decoder does without
        from .transformers_check import proved_layers
        from .transformers_config import read_transformers_spec
        from .transformers_loading import load_pretrained
        from .transformers_model import TransformersModel

        spec = read_transformers_spec(source.path)
        self.watch.lap("config")
        self.progress(WEIGHTS, 0.0)
        pretrained = load_pretrained(source.path, self.dtype, self.device)
        self.progress(WEIGHTS, 1.0)
        self.watch.lap("weights")
        layers = proved_layers(pretrained, spec, self.dtype)
        spec = replace(spec, kv_layers=tuple(layer.shape for layer in layers))
        settings, notes = step_settings(spec, self.config, self.dtype)
        kv = self._pages(spec, settings)
        model = TransformersModel(pretrained, layers, TorchBackend(kv), self.dtype)
        parameters = sum(parameter.numel() for parameter in pretrained.parameters())
        note = f"computed by transformers' own code, slower than fairstep's decoder{self._whole()}: {reason}"
        notes = (note, *notes)
        return Built("transformers", spec, model, kv, settings, parameters, notes)

    def _pages(self, spec: Served, settings: StepSettings) -> KVMemory:
        return KVMemory(
            spec.kv_layers,
            pages=settings.pages,
            page_size=settings.page_size,
            dtype=self.dtype,
            device=self.device,
        )


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
    builder = Builder(config, usable_dtype(config.dtype), torch.device("cpu"), progress, watch)
    built = builder.build(resolve(model))
    release_memory()
    watch.lap("decoder")
    runner = TorchRunner(built.model, built.kv)
    runner.warm_up()
    watch.lap("warm up")
    return runner, built.settings, _ready(model, built, builder)


def step_settings(
    spec: Served, config: EngineConfig, dtype: torch.dtype, rope: RopeSpec | None = None
) -> tuple[StepSettings, tuple[str, ...]]:
    """The step loop's numbers for this model, and notes for people on what limits them. Raises ConfigError.

    rope: what turns its positions, where that may depend on a sequence's length.
    """
    assert config.kv_memory and config.max_seats and config.step_tokens and config.chunk, "the config must be resolved"
    pages = pages_for(
        spec.kv_layers,
        kv_memory=config.kv_memory,
        page_size=config.page_size,
        seats=config.max_seats,
        dtype=dtype,
    )
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
        rope_edge=rope.edge if rope else 0,
        rope_switches=rope is not None and rope.kind == "longrope",
        static=config.batching != "continuous",
        padded=config.batching == "padded",
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


def _context(spec: Served, asked: int | None, pool: int) -> tuple[int, tuple[str, ...]]:
    """The longest sequence served, and what to tell if that is not what one would expect."""
    wanted = min(spec.context, asked or spec.context)
    notes = []
    if asked and asked > spec.context:
        notes.append(f"max_model_len is {asked}, but the model's context is {spec.context}: {wanted} is used")
    if pool < wanted:
        notes.append(f"the KV pool holds {pool} tokens, so the context is {pool} instead of {wanted}: raise kv_memory")
    return min(wanted, pool), tuple(notes)


def _ready(model: str, built: Built, builder: Builder) -> Ready:
    spec, settings, notes = built.spec, built.settings, built.notes
    if torch.cuda.is_available():
        notes = (*notes, "a CUDA device is present but not used: this version computes on the CPU")
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
        dtype=str(builder.dtype).removeprefix("torch."),
        device=builder.device.type,
        parameters=built.parameters,
        seconds=builder.watch.seconds,
        notes=notes,
        prefix_cache=settings.prefix_cache,
        path=built.path,
        weights=built.weights,
    )
