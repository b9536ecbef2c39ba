"""What tests compare with: the model's own class from transformers, in float32 with its eager attention."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from fairstep.model.loading import LoadedModel, load
from fairstep.model.sources import resolve
from fairstep.model.spec import ModelSpec, RopeSpec

NEAR_TIE = 1e-4  # logits: where the two likeliest tokens are nearer than this, rounding may choose


def reference_model(model: str) -> PreTrainedModel:
    """The model named `model` as transformers computes it in float32: its own file, or out of GGUF our tensors."""
    source = resolve(model)
    if source.kind == "directory":
        return AutoModelForCausalLM.from_pretrained(
            source.path, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    return reference_of(load(source, torch.float32, "cpu"))


def reference_of(loaded: LoadedModel) -> LlamaForCausalLM:
    """A Llama already loaded in float32 as transformers computes it; its tensors are shared, not copied."""
    with torch.device("meta"):
        model = LlamaForCausalLM(_config(loaded.spec))
    missing, unexpected = model.load_state_dict(loaded.tensors, strict=False, assign=True)
    assert set(missing) == ({"lm_head.weight"} if loaded.spec.tied else set()) and not unexpected
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)  # its buffers are in no checkpoint
    return model.eval()


def greedy(model: PreTrainedModel, prompt_ids: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    """`count` tokens by transformers' generate, past any end of sequence, and each one's lead in logits."""
    tokens, logits = generated(model, prompt_ids, count)
    return tokens, leads(logits)


@torch.inference_mode()
def generated(model: PreTrainedModel, prompt_ids: Sequence[int], count: int) -> tuple[list[int], Tensor]:
    """`count` greedy tokens by transformers' generate, and the logits [count, vocab] they were chosen from."""
    prompt = torch.tensor([list(prompt_ids)])
    model(prompt[:, :1])  # a short text resets what dynamic rope keeps of a longer one
    answer = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return answer.sequences[0, len(prompt_ids) :].tolist(), torch.cat(answer.logits).to(torch.float32)


def leads(logits: Tensor) -> list[float]:
    """How far the likeliest token of each row is ahead of the next."""
    best = logits.topk(2).values
    return (best[:, 0] - best[:, 1]).tolist()


def assert_same(tokens: Sequence[int], expected: Sequence[int], gaps: Sequence[float]) -> bool:
    """Whether tokens are equal; where they first differ the reference must have been at a near tie, else it fails."""
    assert len(tokens) == len(expected), f"{len(tokens)} tokens instead of {len(expected)}"
    for place, (got, want) in enumerate(zip(tokens, expected, strict=True)):
        if got != want:
            assert gaps[place] < NEAR_TIE, (
                f"output {place} is {got} instead of {want}, which leads by {gaps[place]:.2e} logits"
            )
            return False
    return True


def assert_all_same(answers: Sequence[tuple[Sequence[int], Sequence[int], Sequence[float]]]) -> None:
    """assert_same for many sequences, of which at most max(1, n / 200) may differ at a near tie."""
    differing = sum(not assert_same(*answer) for answer in answers)
    if differing:
        print(f"{differing} of {len(answers)} sequences differ at a near tie")
    assert differing <= max(1, len(answers) / 200)


def _config(spec: ModelSpec) -> LlamaConfig:
    assert not spec.rope.frequency_factors, "transformers has no such field"
    return LlamaConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.context,
        rms_norm_eps=spec.norm_eps,
        rope_parameters=rope_parameters(spec.rope),
        tie_word_embeddings=spec.tied,
        attention_bias=spec.qkv_bias,
        mlp_bias=spec.mlp_bias,
        bos_token_id=spec.bos_id,
        eos_token_id=list(spec.eos_ids),
    )


def rope_parameters(rope: RopeSpec) -> dict[str, Any]:
    """A RopeSpec as transformers writes it."""
    values: dict[str, Any] = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.rotated != 1.0:
        values["partial_rotary_factor"] = rope.rotated
    if rope.kind != "default":
        values["factor"] = rope.factor
    if rope.kind in ("llama3", "yarn", "longrope"):
        values["original_max_position_embeddings"] = rope.original_context
    if rope.kind == "llama3":
        values |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind in ("yarn", "longrope") and rope.magnitude is not None:
        values["attention_factor"] = rope.magnitude
    if rope.kind == "yarn":
        values |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.truncate}
        values |= {"mscale": rope.mscale, "mscale_all_dim": rope.mscale_all} if rope.mscale else {}
    if rope.kind == "longrope":
        values |= {"short_factor": list(rope.short_factors), "long_factor": list(rope.long_factors)}
    return values
