"""From a model's name and resolved settings to a runner ready to step. The one place where the parts are joined."""

import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch

from ..clock import Clock, MonotonicClock
from ..config import KV_MEMORY, EngineConfig
from ..door import Ready
from ..errors import ConfigError, ModelError
from ..kernels.cpu.build import CannotBuild
from ..kernels.cpu.library import Library, best_library
from ..machine import cpu_flags
from ..stepping.settings import StepSettings
from .backend import Backend, TorchBackend
from .computed import CausalModel, Compute
from .cpu_decoder import CpuDecoder, cannot_compute
from .cpu_draws import CpuDraws
from .decoder import Decoder
from .device_choice import DeviceChoice, choose_device
from .device_memory import allocate, free_room, step_bytes
from .draws import DrawWhole, draw_whole
from .fields import NotOurs
from .kv import LEAST_PAGES, KVMemory, page_bytes, pages_for
from .loading import WEIGHTS, load, read_spec
from .memory_plan import Wish, plan_memory
from .runner import TorchRunner
from .sources import Source, resolve
from .spec import LayerShape, ModelSpec, RopeSpec

if TYPE_CHECKING:
    from .device_runner import DeviceRunner
    from .triton_backend import TritonBackend

CPU = torch.device("cpu")
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
    """A model over pages, by `backend` where others can take their place. path, weights: Ready's.

    whole, compute: as TorchRunner takes them.
    """

    path: str
    spec: Served
    model: CausalModel
    kv: KVMemory
    settings: StepSettings
    parameters: int
    notes: tuple[str, ...]
    weights: str = ""
    whole: DrawWhole = draw_whole
    compute: Compute | None = None
    backend: Backend | None = None


@dataclass(frozen=True, slots=True)
class Builder:
    """Loads a model by either path, and lays out its pages."""

    config: EngineConfig
    dtype: torch.dtype
    place: DeviceChoice
    progress: Progress
    watch: Stopwatch

    @property
    def device(self) -> torch.device:
        return self.place.device

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
        triton, lost = self._triton(kv, settings)
        notes = (*notes, *lost)
        if triton:
            from .fused_decoder import FusedDecoder  # which imports triton

            model: CausalModel = FusedDecoder(loaded.spec, loaded.tensors, triton)
            notes = (*notes, *self._unpacked())
            return Built("triton", loaded.spec, model, kv, settings, parameters, notes, backend=triton)
        if library is None:
            backend = TorchBackend(kv)
            model = Decoder(loaded.spec, loaded.tensors, backend)
            notes = (*notes, *self._lost(reason))
            return Built("fairstep", loaded.spec, model, kv, settings, parameters, notes, backend=backend)
        threads = self.config.threads or 1
        packed = CpuDecoder(loaded.spec, loaded.tensors, kv, library, threads, loaded.blocks, quantize)
        path = f"cpu:{library.level.name}"
        whole = CpuDraws(library, threads)
        return Built(path, loaded.spec, packed, kv, settings, parameters, notes, packed.weights, whole, packed.compute)

    def _library(self, spec: ModelSpec) -> tuple[Library | None, str]:
        """The C++ step where it can compute the model, which is in bfloat16; else why not."""
        if self.device.type != "cpu" or self.place.attention != "torch":
            return None, "it computes on a CPU"
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
        if self.device.type != "cpu":
            return self._unpacked()
        if self.dtype is not torch.bfloat16:
            return ()
        return (f"computed by torch, which is slower than fairstep's C++ step{self._whole()}: {reason}",)

    def _unpacked(self) -> tuple[str, ...]:
        """A note where integer weights were asked for in vain."""
        if self.config.quantize not in ("int8", "int4"):
            return ()
        return (
            f"integer weights are those of fairstep's C++ step on a CPU: quantize {self.config.quantize} is not used",
        )

    def _triton(self, kv: KVMemory, settings: StepSettings) -> "tuple[TritonBackend | None, tuple[str, ...]]":
        """Attention by our Triton kernels where they were chosen and can read such pages; else a note on why not."""
        if self.place.attention != "triton":
            return None, ()
        from .triton_backend import TritonBackend, cannot_attend  # which imports triton

        reason = cannot_attend(kv)
        if reason is None:
            return TritonBackend(kv, sequences=settings.seats, longest=settings.context), ()
        if self.config.attention == "triton":
            raise ConfigError(f"attention is triton, but {reason}: set it to auto or torch")
        return None, (f"attention by torch, which is slower than our kernels: {reason}",)

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
        triton, lost = self._triton(kv, settings)
        backend = triton or TorchBackend(kv)
        model = TransformersModel(pretrained, layers, backend, self.dtype)
        parameters = sum(parameter.numel() for parameter in pretrained.parameters())
        note = f"computed by transformers' own code, slower than fairstep's decoder{self._whole()}: {reason}"
        notes = (note, *notes, *lost)
        path = "transformers:triton" if triton else "transformers"
        return Built(path, spec, model, kv, settings, parameters, notes, backend=backend)

    def fitted(self, built: Built, kv_memory: int | None) -> Built:
        """With the pages that a GPU has room for, of at most `kv_memory` bytes if given. Raises ConfigError."""
        backend = built.backend
        assert backend is not None, "a GPU's models compute by a backend"
        spec, seats, step_tokens = built.spec, built.settings.seats, built.settings.step_tokens
        page = page_bytes(spec.kv_layers, self.config.page_size, self.dtype)
        room = free_room(self.device)

        def takes(tokens: int) -> int | None:
            settings = replace(built.settings, step_tokens=tokens)
            backend.use(built.kv, longest=settings.context)  # without what it kept of the try before
            return step_bytes(lambda: runner_of(built, settings), settings, self.device)

        plan = plan_memory(Wish(kv_memory, page, seats, step_tokens), room, takes)
        chunk = min(built.settings.chunk, plan.step_tokens)
        config = replace(self.config, max_seats=plan.seats, step_tokens=plan.step_tokens, chunk=chunk)
        rope = spec.rope if isinstance(spec, ModelSpec) else None
        kv = allocate(lambda pages: self._pages(spec, replace(built.settings, pages=pages)), plan.kv_memory // page)
        settings, notes = step_settings(spec, replace(config, kv_memory=kv.pages * page), self.dtype, rope)
        backend.use(kv, longest=settings.context)
        notes = tuple(dict.fromkeys((*built.notes, *notes, *plan.notes)))  # the settings' own may be there already
        return replace(built, kv=kv, settings=settings, notes=notes)

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
) -> "tuple[TorchRunner | DeviceRunner, StepSettings, Ready]":
    """Load `model` (alias, directory, .gguf file or hub id) under a resolved config.

    `progress` hears what is done and the done part. Sets torch's thread count for the whole process.
    Raises ModelError or ConfigError.
    """
    assert config.threads, "the config must be resolved"
    watch = Stopwatch(clock or MonotonicClock())
    torch.set_num_threads(config.threads)
    place = choose_device(config.device, config.attention)
    on_gpu, kv_memory = place.device.type != "cpu", config.kv_memory
    config = replace(config, kv_memory=None if on_gpu else kv_memory or KV_MEMORY)
    builder = Builder(config, usable_dtype(config.dtype, place.device), place, progress, watch)
    try:
        built = builder.build(resolve(model))
    except torch.cuda.OutOfMemoryError as error:
        raise ModelError(f"{model} does not fit the GPU's memory: take a smaller model or dtype ({error})") from error
    release_memory()
    watch.lap("decoder")
    if on_gpu:
        built = builder.fitted(built, kv_memory)
        watch.lap("memory")
    runner = runner_of(built, built.settings)
    runner.warm_up()
    watch.lap("warm up")
    ahead = steps_ahead(config, overlaps=runner.overlaps)
    return runner, replace(built.settings, ahead=ahead), _ready(model, built, builder)


def runner_of(built: Built, settings: StepSettings) -> "TorchRunner | DeviceRunner":
    """What runs the steps of a model that was built. Padded batches have more slices than there are seats."""
    if built.path != "triton" or settings.padded:
        return TorchRunner(built.model, built.kv, built.whole, built.compute)
    from .cuda_runner import CudaRecorder
    from .device_runner import DeviceRunner  # which imports triton
    from .fused_decoder import FusedDecoder

    assert isinstance(built.model, FusedDecoder)
    recorder = CudaRecorder() if built.model.device.type != "cpu" else None
    return DeviceRunner(built.model, built.kv, settings, recorder)


def steps_ahead(config: EngineConfig, *, overlaps: bool) -> int:
    """StepSettings.ahead: by the config, or where the runner overlaps steps; static batches are never planned ahead."""
    if config.overlap == "auto":
        return int(overlaps and config.batching == "continuous")
    return int(config.overlap == "on")


def step_settings(
    spec: Served, config: EngineConfig, dtype: torch.dtype, rope: RopeSpec | None = None
) -> tuple[StepSettings, tuple[str, ...]]:
    """The step loop's numbers for this model, and notes for people on what limits them. Raises ConfigError.

    rope: what turns its positions, where that may depend on a sequence's length. Without kv_memory there are as few
    pages as can be, and they limit nothing.
    """
    assert config.max_seats and config.step_tokens and config.chunk, "the config must be resolved"
    pages, pool = LEAST_PAGES, spec.context
    if config.kv_memory is not None:
        pages = pages_for(
            spec.kv_layers,
            kv_memory=config.kv_memory,
            page_size=config.page_size,
            seats=config.max_seats,
            dtype=dtype,
        )
        pool = pages * config.page_size
    context, notes = _context(spec, config.max_model_len, pool)
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


def usable_dtype(name: str, device: torch.device = CPU) -> torch.dtype:
    """The torch dtype of a resolved setting. Raises ConfigError where this torch cannot compute with it."""
    dtype = DTYPES[name]
    probe = torch.ones(2, 2, dtype=dtype, device=device)
    try:
        torch.nn.functional.scaled_dot_product_attention(probe[None], probe[None], probe[None])
        torch.nn.functional.linear(probe, probe)
    except RuntimeError as error:
        where = f"on this {device.type.upper()} by torch {torch.__version__}"
        raise ConfigError(f"dtype {name} cannot be computed with {where}: use float32 ({error})") from error
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
    spec, settings, notes = built.spec, built.settings, (*builder.place.notes, *built.notes)
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
