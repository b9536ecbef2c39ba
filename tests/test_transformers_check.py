"""A model that over pages is not what it is alone does not start."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fairstep.errors import ModelError
from fairstep.model.transformers_attention import AttentionLayer
from fairstep.model.transformers_check import proved_layers
from fairstep.model.transformers_config import TransformersSpec
from fairstep.model.transformers_loading import load_pretrained
from tiny_models import tiny_family
from tiny_others import tiny_other

CPU = torch.device("cpu")


def prove(path: Path, dtype: torch.dtype = torch.float32, change: Any = None) -> tuple[AttentionLayer, ...]:
    model = load_pretrained(path, dtype, CPU)
    if change:
        change(model)
    spec = TransformersSpec(architecture=type(model).__name__, vocab_size=320, context=256)
    return proved_layers(model, spec, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shapes_are_found_layer_by_layer(dtype: torch.dtype, tmp_path: Path) -> None:
    layers = prove(tiny_other(tmp_path, "deepseek_v3"), dtype)
    assert [(each.shape.kv_heads, each.shape.key_dim, each.shape.value_dim) for each in layers] == [(4, 24, 12)] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolutions_between_tokens_are_found_out(dtype: torch.dtype, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Lfm2ForCausalLM .* keep state other than keys and values"):
        prove(tiny_other(tmp_path, "lfm2"), dtype)


def test_a_bias_by_position_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="InklingAttention attends with position_bias"):
        prove(tiny_other(tmp_path, "inkling"))


def test_chunked_attention_is_refused_where_the_context_exceeds_a_chunk(tmp_path: Path) -> None:
    path = tiny_other(tmp_path, "llama4", attention_chunk_size=32)
    with pytest.raises(ModelError, match="not causal, or its mask is more than a sliding window"):
        prove(path)


def test_attention_that_does_more_than_it_says_is_found_out(tmp_path: Path) -> None:
    """As if the interface were not told of the softcap, which the model's own attention applies."""

    def hide(model: nn.Module) -> None:
        for module in model.modules():
            if hasattr(module, "attn_logit_softcapping"):
                plain = module.forward
                module.forward = _without_softcap(module, plain)

    with pytest.raises(ModelError, match=r"differs from its plain forward pass .* not built"):
        prove(tiny_family(tmp_path, "gemma2"), change=hide)


def _without_softcap(module: nn.Module, plain: Any) -> Any:
    softcap = module.attn_logit_softcapping

    def forward(*args: Any, **options: Any) -> Any:
        eager = module.config._attn_implementation == "eager"
        module.attn_logit_softcapping = softcap if eager else None
        return plain(*args, **options)

    return forward


def test_a_forward_pass_that_fails_is_told_in_words(tmp_path: Path) -> None:
    def forget(model: Any) -> None:
        del model.model.norm

    with pytest.raises(ModelError, match="cannot be run on sequences packed in one row: AttributeError"):
        prove(tiny_other(tmp_path, "qwen3_moe"), change=forget)


def test_a_head_of_another_size_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    def widen(model: Any) -> None:
        model.lm_head = nn.Linear(64, 384)

    with pytest.raises(ModelError, match=r"logits have shape \[21, 384\] for a vocabulary of 320"):
        prove(tiny_other(tmp_path, "qwen3_moe"), change=widen)
