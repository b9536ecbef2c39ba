"""What tests compare with: transformers' LlamaForCausalLM in float32 on the very tensors that fairstep loads."""

from collections.abc import Sequence

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fairstep.model.loading import LoadedModel, load
from fairstep.model.sources import resolve
from fairstep.model.spec import ModelSpec, RopeSpec

NEAR_TIE = 1e-4  # logits: where the two likeliest tokens are nearer than this, rounding may choose


def reference_model(model: str) -> LlamaForCausalLM:
    """The model named `model` as transformers computes it, from our own tensors."""
    return reference_of(load(resolve(model), torch.float32, "cpu"))


def reference_of(loaded: LoadedModel) -> LlamaForCausalLM:
    """The same for a model already loaded in float32; its tensors are shared, not copied."""
    with torch.device("meta"):
        model = LlamaForCausalLM(_config(loaded.spec))
    missing, unexpected = model.load_state_dict(loaded.tensors, strict=False, assign=True)
    assert set(missing) == ({"lm_head.weight"} if loaded.spec.tied else set()) and not unexpected
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)  # its buffers are in no checkpoint
    return model.eval()


@torch.inference_mode()
def greedy(model: LlamaForCausalLM, prompt_ids: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    """`count` tokens by transformers' generate, past any end of sequence, and each one's lead in logits."""
    prompt = torch.tensor([list(prompt_ids)])
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
    best = [step[0].topk(2).values.tolist() for step in answer.logits]
    return answer.sequences[0, len(prompt_ids) :].tolist(), [first - second for first, second in best]


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


def rope_parameters(rope: RopeSpec) -> dict[str, str | float | int]:
    """A RopeSpec as transformers writes it."""
    values: dict[str, str | float | int] = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.kind != "default":
        values["factor"] = rope.factor
    if rope.kind == "llama3":
        values["low_freq_factor"] = rope.low_freq_factor
        values["high_freq_factor"] = rope.high_freq_factor
        values["original_max_position_embeddings"] = rope.original_context
    return values
