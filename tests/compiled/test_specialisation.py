"""Nothing is compiled anew while requests are served: kernels hang on the model, not on how much there is in a step."""

from functools import partial

import pytest

from fairstep.kernels.triton import decoder_cases, sampling_cases
from fairstep.kernels.triton.ahead import Specialised, launches_of, specialised
from fairstep.kernels.triton.cases import all_cases
from fairstep.kernels.triton.chips import CHIPS

SIZES = ((1, 1), (2, 2), (16, 16), (17, 17), (48, 1), (100, 3), (512, 64))  # tokens and sequences of a step


def kernels_of(case: str, tokens: int, sequences: int, monkeypatch: pytest.MonkeyPatch) -> list[Specialised]:
    """What a case needs compiled in a step of another size."""
    for module in (decoder_cases, sampling_cases):
        monkeypatch.setattr(module, "TOKENS", tokens)
        monkeypatch.setattr(module, "SEQUENCES", sequences)
    chip = CHIPS["sm90"]
    return [specialised(launch, chip) for launch in launches_of(partial(all_cases()[case].call, chip))]


@pytest.mark.parametrize("case", [name for name in all_cases() if not name.endswith("fp16")])
def test_a_steps_size_compiles_nothing_anew(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = kernels_of(case, 512, 64, monkeypatch)
    for tokens, sequences in SIZES:
        for one, other in zip(kernels_of(case, tokens, sequences, monkeypatch), usual, strict=True):
            assert one == other, f"{one.kernel} of {tokens} tokens, {sequences} sequences"
