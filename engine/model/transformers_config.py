"""What a model directory says of itself, read by transformers: for architectures that our decoder does not know.

Refuses in words what cannot be computed as a causal decoder over pages. Knows no weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel
from transformers import __version__ as transformers_version

from ..errors import ModelError
from .fields import Fields, read_json
from .hf_config import read_generation, sampling_defaults
from .spec import LayerShape
from .transformers_silence import silence

CONFIG_FILE = "config.json"
BY_LENGTH = ("dynamic", "longrope")  # transformers takes the longest sequence of a batch for all of them
STATEFUL = ("linear", "mamba", "conv", "recurrent", "ssm")  # in the names that configs give to layers
MORE_THAN_TEXT = ("vision", "audio", "text", "image", "speech", "vq")  # in the names of a config's parts
ONLY = "only decoders of text are served"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersSpec:
    """A model that runs through transformers. kv_layers: known once it is loaded, one for each attention call."""

    architecture: str
    vocab_size: int
    context: int
    native_dtype: str = "float32"
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    defaults: dict[str, float] = field(default_factory=dict)
    kv_layers: tuple[LayerShape, ...] = ()


def read_transformers_spec(directory: Path) -> TransformersSpec:
    """The model a directory describes. Raises ModelError naming file and reason."""
    path = directory / CONFIG_FILE
    raw = Fields(read_json(path), path)
    if raw.has("quantization_config"):
        raise raw.error("quantization_config", "is set: quantised weights are read from GGUF files only")
    name = _architecture(raw)
    config = _config(raw, directory)
    kind = model_class(config, path)
    _refuse_class(name, config, kind, raw)
    _refuse_config(name, config, raw)
    values = Fields(config.to_dict() | {"context": getattr(config, "max_position_embeddings", None)}, path)
    if not values.has("context"):
        raise raw.error("max_position_embeddings", "is missing: how long a sequence may be is unknown")
    vocab_size = values.integer("vocab_size")
    generation = read_generation(directory)
    return TransformersSpec(
        architecture=kind.__name__,
        vocab_size=vocab_size,
        context=values.integer("context"),
        native_dtype=str(config.dtype or "float32").removeprefix("torch."),
        eos_ids=generation.token_ids("eos_token_id", vocab_size) or values.token_ids("eos_token_id", vocab_size),
        bos_id=next(iter(values.token_ids("bos_token_id", vocab_size)), None),
        defaults=sampling_defaults(generation),
    )


def model_class(config: PretrainedConfig, path: Path) -> type[PreTrainedModel]:
    """transformers' class of causal language model for a config. Raises ModelError."""
    kind: object = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if not (isinstance(kind, type) and issubclass(kind, PreTrainedModel)):
        raise ModelError(
            f"{path}: model_type {config.model_type} is no decoder-only language model of transformers "
            f"{transformers_version}: {ONLY}"
        )
    return kind


def _architecture(raw: Fields) -> str:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise raw.error("architectures", f"must be a list of one name, not {names!r}")
    if names[0].endswith("ForConditionalGeneration"):
        raise raw.error("architectures", f"is {names[0]}, an encoder-decoder or a model of images or sound: {ONLY}")
    return names[0]


def _config(raw: Fields, directory: Path) -> PretrainedConfig:
    try:
        with silence():
            config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever a config's own code raises
        if raw.has("auto_map"):
            problem = f"({raw.get('model_type')}) needs Python code of its own (auto_map), which is never run"
        else:
            problem = f"({raw.get('model_type')}) cannot be read by transformers {transformers_version}: {error}"
        raise raw.error("model_type", problem) from error
    assert isinstance(config, PretrainedConfig)
    return config


def _refuse_class(name: str, config: PretrainedConfig, kind: type[PreTrainedModel], raw: Fields) -> None:
    """What transformers knows of a model's class."""
    problem = None
    if config.is_encoder_decoder:
        problem = f"is {name}, an encoder-decoder: {ONLY}"
    elif name != kind.__name__ and not name.endswith("ForCausalLM"):
        problem = f"is {name}, which is no causal language model: {ONLY}"
    elif any(word in part for part in config.sub_configs for word in MORE_THAN_TEXT):
        problem = f"is {name}, which takes more than text: {ONLY}"
    elif getattr(kind, "_is_stateful", False):
        problem = f"is {name}, which has layers that keep state other than keys and values"
    elif not kind._can_set_attn_implementation():
        problem = f"is {name}, which does not go through transformers' attention interface"
    if problem:
        raise raw.error("architectures", problem)


def _refuse_config(name: str, config: PretrainedConfig, raw: Fields) -> None:
    """What a config says of layers and positions."""
    for layer in getattr(config, "layer_types", None) or ():
        if any(word in layer for word in STATEFUL):
            raise raw.error("layer_types", f"has {layer}: {name} has layers that keep state other than keys and values")
    for kind in _rope_types(config.to_dict()):
        if kind in BY_LENGTH:
            problem = f"of kind {kind} depend on the longest of a batch's sequences in {name}: they are not built"
            raise raw.error("rope_parameters", problem)


def _rope_types(values: object) -> Iterator[str]:
    """Every rope_type anywhere in a config."""
    if isinstance(values, dict):
        for key, value in values.items():
            if key == "rope_type" and isinstance(value, str):
                yield value
            yield from _rope_types(value)
