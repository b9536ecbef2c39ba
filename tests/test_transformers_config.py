"""What transformers' configs say of a model, and which models are refused by their config alone, in words."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from fairstep.errors import ModelError
from fairstep.model.transformers_config import TransformersSpec, read_transformers_spec
from tiny_others import COMMON, other_config


def write(path: Path, config: transformers.PreTrainedConfig, architecture: str, **changes: Any) -> Path:
    """A directory with nothing but a config.json."""
    config.architectures = [architecture]
    config.save_pretrained(path)
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return path


def test_a_spec_holds_what_serving_needs(tmp_path: Path) -> None:
    path = write(tmp_path, other_config("gpt_neox"), "GPTNeoXForCausalLM", dtype="bfloat16")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8], "temperature": 0.5, "top_k": 3}))
    assert read_transformers_spec(path) == TransformersSpec(
        architecture="GPTNeoXForCausalLM",
        vocab_size=320,
        context=256,
        native_dtype="bfloat16",
        eos_ids=(7, 8),
        bos_id=0,
        defaults={"temperature": 0.5, "top_k": 3},
    )


def test_keys_that_an_architecture_calls_otherwise_are_found(tmp_path: Path) -> None:
    names = {"n_positions": 128, "n_embd": 64, "n_head": 4}
    config = transformers.GPT2Config(vocab_size=300, **names, bos_token_id=4, eos_token_id=5)
    spec = read_transformers_spec(write(tmp_path, config, "GPT2LMHeadModel"))
    assert (spec.vocab_size, spec.context, spec.eos_ids) == (300, 128, (5,))


def test_code_of_the_librarys_own_is_used_where_a_model_brings_some(tmp_path: Path) -> None:
    path = write(tmp_path, other_config("deepseek_v3"), "DeepseekV3ForCausalLM", auto_map={"AutoConfig": "evil.Config"})
    (path / "evil.py").write_text("raise SystemExit('this was run')")
    assert read_transformers_spec(path).architecture == "DeepseekV3ForCausalLM"


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
REFUSED: dict[str, tuple[str, str, str]] = {
    "T5Config": ("T5ForConditionalGeneration", "encoder-decoder", "is T5For"),
    "BartConfig": ("BartForCausalLM", "an encoder-decoder: only decoders of text", "is BartFor"),
    "WhisperConfig": ("WhisperForConditionalGeneration", "images or sound", "is WhisperFor"),
    "Gemma3Config": ("Gemma3ForConditionalGeneration", "images or sound", "is Gemma3For"),
    "Emu3Config": ("Emu3ForCausalLM", "takes more than text", "is Emu3For"),
    "BertConfig": ("BertForMaskedLM", "which is no causal language model", "is BertForMaskedLM"),
    "LlamaConfig": ("LlamaForSequenceClassification", "no causal language model", "is LlamaForSequence"),
    "ViTConfig": ("ViTForImageClassification", "no decoder-only language model of transformers", "model_type vit"),
    "MambaConfig": ("MambaForCausalLM", "keep state other than keys and values", "is MambaFor"),
    "JambaConfig": ("JambaForCausalLM", "keep state other than keys and values", "is JambaFor"),
    "RwkvConfig": ("RwkvForCausalLM", "keep state other than keys and values", "is RwkvFor"),
    "BloomConfig": ("BloomForCausalLM", "attention interface", "is BloomFor"),
    "FalconConfig": ("FalconForCausalLM", "attention interface", "is FalconFor"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_decoder_over_pages_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    architecture, *reasons = REFUSED[kind]
    path = write(tmp_path, getattr(transformers, kind)(), architecture)
    with pytest.raises(ModelError) as caught:
        read_transformers_spec(path)
    assert all(reason in str(caught.value) for reason in (*reasons, str(path / "config.json")))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "GGUF files only"),
        ({"architectures": None}, "must be a list of one name"),
        ({"architectures": ["A", "B"]}, "must be a list of one name"),
        ({"model_type": "unheard_of"}, r"\(unheard_of\) cannot be read by transformers"),
        ({"model_type": "unheard_of", "auto_map": {"AutoConfig": "a.B"}}, "code of its own .* never run"),
        ({"vocab_size": "many"}, "cannot be read by transformers"),
        ({"rope_parameters": DYNAMIC}, "kind dynamic depend on the longest of a batch's sequences"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear_attention: .* keep state other"),
    ],
)
def test_what_a_config_asks_for_in_vain_is_told(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = write(tmp_path, other_config("qwen3_moe"), "Qwen3MoeForCausalLM", **changes)
    with pytest.raises(ModelError, match=reason) as caught:
        read_transformers_spec(path)
    assert "\n" not in str(caught.value)


def test_longrope_is_refused(tmp_path: Path) -> None:
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "rope_theta": 1e4}
    scaling = {**rope, "short_mscale": 1.0, "long_mscale": 1.0, "original_max_position_embeddings": 64}
    config = transformers.PhimoeConfig(**COMMON, rope_parameters=scaling)
    with pytest.raises(ModelError, match="kind longrope depend on the longest"):
        read_transformers_spec(write(tmp_path, config, "PhimoeForCausalLM"))


def test_a_length_that_nobody_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, transformers.CTRLConfig(), "CTRLLMHeadModel")
    monkeypatch.setattr(transformers.CTRLConfig, "attribute_map", {})
    with pytest.raises(ModelError, match="max_position_embeddings is missing"):
        read_transformers_spec(path)


def test_token_ids_outside_the_vocabulary_are_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, other_config("gpt_neox"), "GPTNeoXForCausalLM", eos_token_id=5000)
    with pytest.raises(ModelError, match="eos_token_id must be token ids below the vocabulary of 320, not 5000"):
        read_transformers_spec(path)
    assert capfd.readouterr() == ("", "")
