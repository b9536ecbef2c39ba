"""A long prompt beside a running stream, on the real model: each planned step keeps to the target and wastes nothing.

Read off the plans and the coefficients they were made with; no stopwatch.
"""

import pytest

from fairstep import Engine, EngineConfig, SamplingParams
from fairstep.door import StepRecord
from fairstep.stepping.scheduler import AUTO_FLOOR, auto_target

pytestmark = pytest.mark.real

PROMPT_TOKENS = 3_000
CLOSE = 1 + 1e-9


def cost(step: StepRecord, more: int = 0) -> float:
    """The step's modelled cost with `more` tokens added to its prompt slice, by its own coefficients."""
    c = step.coefficients
    context = sum(piece.start + piece.length for piece in step.slices) + more
    prompt = sum(piece.length for piece in step.slices if not piece.decode) + more
    return c.base + c.prompt * prompt + c.sequence * len(step.slices) + c.context * context


def decode_only(step: StepRecord) -> float:
    c = step.coefficients
    decodes = [piece for piece in step.slices if piece.decode]
    return c.base + c.sequence * len(decodes) + c.context * sum(piece.start + piece.length for piece in decodes)


def test_a_long_prompt_never_stalls_a_running_stream_and_wastes_no_room() -> None:
    with Engine("smollm2", EngineConfig()) as engine:
        stream = engine.submit("The quick brown fox", SamplingParams(temperature=0, max_tokens=2_000, ignore_eos=True))
        for _ in range(4):
            engine.step()
        long = engine.submit([100 + n % 40_000 for n in range(PROMPT_TOKENS)], SamplingParams(max_tokens=1))
        seq = engine.seq_of(long)
        before = len(engine.steps)
        while engine.seq_of(long) is not None:
            engine.step()
        engine.cancel(stream)
    mixed = [step for step in engine.steps[before:] if any(piece.seq == seq for piece in step.slices)]
    assert sum(step.prompt_tokens for step in mixed) == PROMPT_TOKENS
    for step in mixed:
        assert step.decode_tokens == 1, "the stream went on in every step"
        assert step.decode_only == pytest.approx(decode_only(step))
        assert step.modelled == pytest.approx(cost(step))
        # before anything of a prompt was measured the first guess may leave room for the floor alone
        assert step.modelled <= auto_target(step.decode_only) * CLOSE or step.prompt_tokens == AUTO_FLOOR
    for step in mixed[:-1]:
        assert cost(step, more=1) > auto_target(step.decode_only) / CLOSE, "room for a prompt token was left unused"
    print(f"{PROMPT_TOKENS} prompt tokens in {len(mixed)} steps beside a stream")
