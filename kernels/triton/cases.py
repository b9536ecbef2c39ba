"""All that is compiled ahead of time. A chip that a case leaves out is named there, with the reason."""

from . import decoder_cases, sampling_cases
from .case import Case


def all_cases() -> dict[str, Case]:
    """By name."""
    cases = [
        *decoder_cases.attention_cases(),
        *decoder_cases.qkv_cases(),
        *decoder_cases.kv_write_cases(),
        *decoder_cases.norm_cases(),
        *decoder_cases.activation_cases(),
        *sampling_cases.input_cases(),
        *sampling_cases.sampling_cases(),
        *sampling_cases.logprob_cases(),
    ]
    return {case.name: case for case in cases}
