"""Each family's config.json as a ModelSpec, its tensors, and that every feature of the tiny models shows in logits."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from fairstep.door import Sampling
from fairstep.errors import ModelError
from fairstep.model.backend import TorchBackend
from fairstep.model.batch import StepBatch
from fairstep.model.decoder import Decoder
from fairstep.model.families import FAMILIES as KNOWN
from fairstep.model.hf_config import NotOurs, read_hf_spec
from fairstep.model.kv import KVMemory
from fairstep.model.loading import LoadedModel, load
from fairstep.model.rope import Rotary
from fairstep.model.sources import resolve
from fairstep.model.spec import ModelSpec, RopeSpec
from fairstep.model.tensor_shapes import tensor_shapes
from fairstep.stepping.plan import Slice
from reference import reference_model
from tiny_models import FAMILIES, tiny_family

CPU = torch.device("cpu")
LENGTH = 75  # past every window
CLOSE = 1e-4
SEEN = 1e-2  # logits: what a feature changes at least

SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}


ROPE_KEYS = (
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "truncate",
    "mscale",
    "mscale_all_dim",
    "short_factor",
    "long_factor",
    "low_freq_factor",
    "high_freq_factor",
    "partial_rotary_factor",
    "full_attention",
    "sliding_attention",
)
KEYS = (
    *SIZES,
    *ROPE_KEYS,
    *{key for family in KNOWN.values() for key in family.absent},
    "architectures",
    "rope_scaling",
    "rope_parameters",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
    "no_rope_layers",
    "no_rope_layer_interval",
    "attention_bias",
    "embedding_multiplier",
    "logits_scaling",
    "hidden_act",
    "head_dim",
    "num_key_value_heads",
)


def read(path: Path, architecture: str, **changes: Any) -> ModelSpec:
    """The spec of a config with nothing but sizes and `changes`; None is JSON's null."""
    (path / "config.json").write_text(json.dumps({**SIZES, "architectures": [architecture], **changes}))
    return read_hf_spec(path)


@dataclass
class Built:
    """One tiny model in transformers, and what fairstep loads of it."""

    path: Path
    loaded: LoadedModel
    reference: PreTrainedModel
    ids: list[int]

    def logits(self, spec: ModelSpec, dtype: torch.dtype = torch.float32) -> Tensor:
        """All logits [LENGTH, vocab] that a decoder of this spec computes."""
        kv = KVMemory(spec.kv_layers, pages=12, page_size=8, dtype=dtype, device=CPU)
        tensors = {name: tensor.to(dtype) for name, tensor in self.loaded.tensors.items()}
        decoder = Decoder(spec, tensors, TorchBackend(kv))
        whole = Slice(1, 1, 0, tuple(self.ids), tuple(range(12, 2, -1)), True, 0, Sampling(), False)
        return decoder.logits(decoder.hidden(StepBatch([whole], 8, CPU)))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Built]:
    made: dict[str, Built] = {}

    def of(family: str) -> Built:
        if family not in made:
            path = tiny_family(tmp_path_factory.mktemp(family), family)
            ids = torch.randint(0, 320, (LENGTH,), generator=torch.Generator().manual_seed(1)).tolist()
            loaded = load(resolve(str(path)), torch.float32, CPU)
            made[family] = Built(path, loaded, reference_model(str(path)), ids)
        return made[family]

    return of


def test_every_known_family_has_a_tiny_model(built: Callable[[str], Built]) -> None:
    assert {built(family).loaded.spec.architecture for family in FAMILIES} == set(KNOWN)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_and_shapes_are_those_transformers_writes(family: str, built: Callable[[str], Built]) -> None:
    model = built(family)
    written = {name: tuple(tensor.shape) for name, tensor in load_file(model.path / "model.safetensors").items()}
    assert tensor_shapes(model.loaded.spec) == written


@pytest.mark.parametrize("family", FAMILIES)
def test_all_logits_are_those_of_transformers(family: str, built: Callable[[str], Built]) -> None:
    model = built(family)
    with torch.inference_mode():
        want = model.reference(torch.tensor([model.ids])).logits[0]
    torch.testing.assert_close(model.logits(model.loaded.spec), want, atol=CLOSE, rtol=0)


@pytest.mark.parametrize(
    ("family", "without"),
    [
        ("mistral", {"windows": ()}),
        ("mistral", {"windows": (8, 8, 8)}),
        ("mistral", {"windows": (10, 10, 10)}),
        ("qwen2", {"windows": ()}),
        ("qwen2", {"qkv_bias": False}),
        ("qwen3", {"qk_norm": "none"}),
        ("qwen3", {"o_bias": False}),
        ("gemma", {"norm_plus_one": False}),
        ("gemma", {"embedding_scale": 1.0}),
        ("gemma", {"activation": "silu"}),
        ("gemma2", {"windows": ()}),
        ("gemma2", {"attention_softcap": 0.0}),
        ("gemma2", {"logit_softcap": 0.0}),
        ("gemma2", {"attention_scale": None}),
        ("gemma2", {"norm_place": "before"}),
        ("gemma3", {"local_rope": None}),
        ("gemma3", {"rope": RopeSpec(theta=1e6)}),
        ("gemma3", {"qk_norm": "none"}),
        ("gemma3", {"windows": (10, 10, 10)}),
        ("phi3", {"windows": ()}),
        ("smollm3", {"rotary_layers": ()}),
        ("smollm3", {"windows": ()}),
        ("olmo2", {"qk_norm": "none"}),
        ("granite", {"embedding_scale": 1.0}),
        ("granite", {"attention_scale": None}),
        ("granite", {"residual_scale": 1.0}),
        ("granite", {"logit_scale": 1.0}),
    ],
)
def test_every_feature_shows_in_the_logits(family: str, without: dict[str, Any], built: Callable[[str], Built]) -> None:
    model = built(family)
    changed = model.logits(replace(model.loaded.spec, **without)) - model.logits(model.loaded.spec)
    assert changed.abs().max() > SEEN


def test_softcaps_are_reached(built: Callable[[str], Built]) -> None:
    spec = built("gemma2").loaded.spec
    raw = built("gemma2").logits(replace(spec, logit_softcap=0.0)).abs().max()
    assert raw > 2 * spec.logit_softcap


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_stays_near_float32(family: str, built: Callable[[str], Built]) -> None:
    spec = built(family).loaded.spec
    wide, narrow = built(family).logits(spec), built(family).logits(spec, torch.bfloat16)
    torch.testing.assert_close(narrow, wide, atol=0.05 * wide.abs().max().item(), rtol=0)


def test_bfloat16_rounds_the_embedding_scale_as_its_weights(built: Callable[[str], Built]) -> None:
    model = built("gemma")
    spec = replace(model.loaded.spec, embedding_scale=3072**0.5)
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in model.loaded.tensors.items()}
    kv = KVMemory(spec.kv_layers, pages=2, page_size=8, dtype=torch.bfloat16, device=CPU)
    assert Decoder(spec, tensors, TorchBackend(kv)).embedding_scale == 55.5


# What transformers' config classes take for keys that are not there.


def test_mistral_without_the_key_has_a_window_and_with_null_has_none(tmp_path: Path) -> None:
    long = {"max_position_embeddings": 32_768}
    assert read(tmp_path, "MistralForCausalLM", **long).windows == (4096,) * 4
    assert read(tmp_path, "MistralForCausalLM", sliding_window=None, **long).windows == ()
    assert read(tmp_path, "MistralForCausalLM", sliding_window=100).windows == (100,) * 4
    assert read(tmp_path, "MistralForCausalLM", sliding_window=512).windows == ()


def test_mistral_has_no_biases_whatever_its_config_says(tmp_path: Path) -> None:
    spec = read(tmp_path, "MistralForCausalLM", attention_bias=True, mlp_bias=True)
    assert (spec.qkv_bias, spec.o_bias, spec.mlp_bias) == (False, False, False)


@pytest.mark.parametrize(
    ("keys", "windows"),
    [
        ({"sliding_window": 100}, ()),
        ({"use_sliding_window": True, "sliding_window": 100}, ()),  # max_window_layers is 28
        ({"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 3}, (0, 0, 0, 100)),
        ({"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}, ()),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 100,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (100, 0, 100, 0),
        ),
    ],
)
@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_windows_of_qwen(tmp_path: Path, architecture: str, keys: dict[str, Any], windows: tuple[int, ...]) -> None:
    assert read(tmp_path, architecture, **keys).windows == windows


def test_biases_and_norms_of_qwen(tmp_path: Path) -> None:
    second = read(tmp_path, "Qwen2ForCausalLM", attention_bias=False)
    assert (second.qkv_bias, second.o_bias, second.qk_norm, second.head_dim) == (True, False, "none", 16)
    third = read(tmp_path, "Qwen3ForCausalLM", attention_bias=True)
    assert (third.qkv_bias, third.o_bias, third.qk_norm, third.head_dim) == (True, True, "head", 128)


def test_gemma_1(tmp_path: Path) -> None:
    spec = read(tmp_path, "GemmaForCausalLM", hidden_act="gelu")  # as the first release has it
    assert (spec.activation, spec.tied, spec.head_dim, spec.norm_plus_one) == ("gelu_tanh", True, 256, True)
    assert (spec.embedding_scale, spec.norm_place, spec.attention_scale) == (8.0, "before", None)


def test_gemma_2(tmp_path: Path) -> None:
    spec = read(tmp_path, "Gemma2ForCausalLM", sliding_window=100, query_pre_attn_scalar=144)
    assert spec.windows == (100, 0, 100, 0)
    assert (spec.attention_softcap, spec.logit_softcap, spec.attention_scale) == (50.0, 30.0, 1 / 12)
    assert (spec.norm_place, spec.activation, spec.tied, spec.qk_norm) == ("both", "gelu_tanh", True, "none")
    bare = read(tmp_path, "Gemma2ForCausalLM", attn_logit_softcapping=None, final_logit_softcapping=None)
    assert (bare.attention_softcap, bare.logit_softcap, bare.windows) == (0.0, 0.0, ())


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
        {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}},
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
    ],
)
def test_gemma_3_in_both_spellings(tmp_path: Path, keys: dict[str, Any]) -> None:
    spec = read(tmp_path, "Gemma3ForCausalLM", num_hidden_layers=7, sliding_window=4096, **keys)
    assert (spec.rope, spec.local_rope) == (RopeSpec(theta=1e6), RopeSpec(theta=1e4))
    assert spec.windows == (4096,) * 5 + (0, 4096)  # they never close, but have a rope of their own
    assert (spec.qk_norm, spec.logit_softcap, spec.attention_softcap) == ("head", 0.0, 0.0)


def test_gemma_3_scales_its_global_layers_only(tmp_path: Path) -> None:
    old = read(tmp_path, "Gemma3ForCausalLM", rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert (old.rope, old.local_rope) == (RopeSpec(theta=1e6, kind="linear", factor=8.0), RopeSpec(theta=1e4))


LONGROPE = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


@pytest.mark.parametrize("name", ["su", "yarn", "longrope"])
def test_phi_3_calls_longrope_by_other_names(tmp_path: Path, name: str) -> None:
    keys = {"rope_scaling": {"type": name, **LONGROPE}, "original_max_position_embeddings": 128}
    spec = read(tmp_path, "Phi3ForCausalLM", **keys)
    assert spec.rope == RopeSpec(
        kind="longrope", factor=4.0, original_context=128, short_factors=(1.0,) * 8, long_factors=(2.0,) * 8
    )
    assert (spec.fused_qkv, spec.fused_gate_up, spec.windows, spec.rope.edge) == (True, True, (), 128)


@pytest.mark.parametrize("place", ["config", "rope"])
def test_phi_3_may_turn_a_part_of_each_head(tmp_path: Path, place: str) -> None:
    rope = {"type": "longrope", "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}
    part = {"partial_rotary_factor": 0.75}
    keys = {"rope_scaling": rope, **part} if place == "config" else {"rope_scaling": {**rope, **part}}
    assert read(tmp_path, "Phi3ForCausalLM", **keys).rope.rotated == 0.75


@pytest.mark.parametrize("part", [0.07, 0.2, 1.5])
def test_a_part_that_is_no_even_number_of_dimensions_is_refused(tmp_path: Path, part: float) -> None:
    with pytest.raises(ModelError, match=f"partial_rotary_factor is {part}: of a head of 16 an even part must turn"):
        read(tmp_path, "Phi3ForCausalLM", partial_rotary_factor=part)


def test_smollm_3(tmp_path: Path) -> None:
    spec = read(tmp_path, "SmolLM3ForCausalLM", sliding_window=100)
    assert (spec.rotary_layers, spec.windows) == ((True, True, True, False), ())
    assert (spec.tied, spec.rope.theta) == (True, 2e6)
    spec = read(
        tmp_path, "SmolLM3ForCausalLM", no_rope_layers=[1, 0, 0, 1], use_sliding_window=True, sliding_window=100
    )
    assert (spec.rotary_layers, spec.windows) == ((True, False, False, True), (0, 100, 100, 0))


def test_olmo_2_and_granite(tmp_path: Path) -> None:
    olmo = read(tmp_path, "Olmo2ForCausalLM")
    assert (olmo.norm_place, olmo.qk_norm, olmo.norm_plus_one) == ("after", "all", False)
    granite = read(tmp_path, "GraniteForCausalLM", embedding_multiplier=12, logits_scaling=8, residual_multiplier=0.22)
    assert (granite.embedding_scale, granite.logit_scale, granite.residual_scale) == (12.0, 0.125, 0.22)
    assert granite.attention_scale == 1.0  # what the config class takes for an absent key


@pytest.mark.parametrize(
    ("architecture", "keys", "match"),
    [
        ("BertForMaskedLM", {}, "architectures is BertForMaskedLM; known are LlamaForCausalLM, MistralForCausalLM"),
        ("Gemma3ForConditionalGeneration", {}, "architectures is Gemma3ForConditionalGeneration; known are"),
        ("LlamaForCausalLM", {"hidden_act": "relu2"}, "hidden_act is relu2; known are silu"),
        ("LlamaForCausalLM", {"sliding_window": 100}, "sliding_window is 100, less than the context"),
        ("Olmo2ForCausalLM", {"sliding_window": 100}, "sliding_window is 100, less than the context"),
        ("LlamaForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is not 1"),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "mrope"}}, r"rope_scaling\.rope_type is mrope; known are"),
        (
            "Gemma2ForCausalLM",
            {"layer_types": ["chunked_attention"] * 4},
            "layer_types has 'chunked_attention'; known are full_attention, sliding_attention",
        ),
        (
            "Gemma3ForCausalLM",
            {"rope_parameters": {"sliding_attention": {"rope_type": "dynamic", "factor": 2.0}}},
            r"rope_parameters\.sliding_attention\.rope_type is dynamic: local layers can't be scaled by the length",
        ),
    ],
)
def test_what_the_decoder_lacks_is_told_apart(
    tmp_path: Path, architecture: str, keys: dict[str, Any], match: str
) -> None:
    with pytest.raises(NotOurs, match=match):
        read(tmp_path, architecture, **keys)


@pytest.mark.parametrize(
    ("architecture", "keys", "match"),
    [
        ("LlamaForCausalLM", {"quantization_config": {"bits": 4}}, "quantization_config is set"),
        ("DeepseekV3ForCausalLM", {"quantization_config": {"bits": 8}}, "quantization_config is set"),
        ("MistralForCausalLM", {"sliding_window": "wide"}, "sliding_window must be an integer"),
        ("Gemma2ForCausalLM", {"sliding_window": None}, "sliding_window is missing"),
        ("Gemma2ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types must be a list of 4 kinds"),
        ("Gemma2ForCausalLM", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be a number above 0"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "the model reads texts, it doesn't"),
        (
            "Gemma3ForCausalLM",
            {"rope_parameters": {"full_attention": 3}},
            r"rope_parameters\.full_attention must be an",
        ),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}, "no_rope_layers must be a list of 4 integers"),
        ("GraniteForCausalLM", {"logits_scaling": 0}, "logits_scaling must be a number above 0"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "su"}}, r"short_factor must be a list of 8 numbers above 0"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "su", **LONGROPE, "long_factor": [0] * 8}},
            r"rope_scaling\.long_factor must be a list of 8 numbers above 0",
        ),
    ],
)
def test_a_malformed_config_is_an_error_of_the_file(
    tmp_path: Path, architecture: str, keys: dict[str, Any], match: str
) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        read(tmp_path, architecture, **keys)
    assert not isinstance(caught.value, NotOurs)


ODD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "default", "yarn", "longrope", "dynamic", "full_attention", "sliding_attention"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(ROPE_KEYS), inner, max_size=4),
    max_leaves=8,
)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_a_config_says_is_read_or_refused_in_words(data: st.DataObject) -> None:
    config = {**SIZES, "architectures": [data.draw(st.sampled_from(sorted(KNOWN)))]}
    config |= data.draw(st.dictionaries(st.sampled_from(KEYS), ODD_VALUES, max_size=6))
    with TemporaryDirectory() as directory:
        path = Path(directory)
        (path / "config.json").write_text(json.dumps(config))
        try:
            spec = read_hf_spec(path)
        except ModelError as error:
            assert str(path) in str(error) and str(error).isprintable()
            return
    if spec.head_dim <= 512:
        Rotary(spec.rope, spec.head_dim, CPU)
    assert spec.rope.rotated == 1.0 or spec.architecture == "Phi3ForCausalLM"
    assert len(spec.windows) in (0, spec.layers) and len(spec.rotary_layers) in (0, spec.layers)
