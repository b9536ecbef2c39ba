"""step_shares.py: slices' parts of a step's modelled cost add up to it."""

import pytest

from fairstep.door import Coefficients, SliceRecord, StepRecord
from fairstep.step_shares import micros_of


def test_the_parts_add_up_to_the_whole_and_prompts_cost_by_the_token() -> None:
    of = Coefficients(base=0.02, prompt=0.001, sequence=0.003, context=0.0001)
    slices = (SliceRecord(1, 1, 40, 1, True), SliceRecord(2, 3, 0, 10, False))
    record = StepRecord(1, slices, 10, 1, modelled=0.0, decode_only=0.0, target=0.0, coefficients=of)
    micros = micros_of(record)
    assert micros == {(1, 1): 17_100, (2, 3): 24_000}
    assert sum(micros.values()) == pytest.approx(1e6 * (0.02 + 10 * 0.001 + 2 * 0.003 + 51 * 0.0001))
