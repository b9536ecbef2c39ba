"""transformers_generate.py: rows of a left-padded batch get what each gets alone, one call a token."""

from pathlib import Path

import pytest

from fairstep import Engine, EngineConfig, SamplingParams
from fairstep.errors import ModelError
from fairstep.model.transformers_generate import Generator
from replay_tiny import tiny_directory

PROMPTS = [list(range(260, 260 + length)) for length in (3, 17, 8)]


def test_a_directory_s_rows_get_what_each_gets_alone(tmp_path: Path) -> None:
    generator = Generator(str(tiny_directory(tmp_path)), "float32")
    calls: list[int] = []
    together = generator.answer(PROMPTS, 6, lambda: calls.append(1))
    assert len(calls) == 6
    assert together == [generator.answer([prompt], 6, lambda: None)[0] for prompt in PROMPTS]


@pytest.mark.real
def test_gguf_rows_get_the_engine_s_tokens() -> None:
    generator = Generator("smollm2", "float32")
    params = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
    with Engine("smollm2", EngineConfig(dtype="float32", kv_memory="64MiB")) as engine:  # type: ignore[arg-type]
        expected = [list(answer.token_ids) for answer in engine.generate(PROMPTS, params)]
    assert generator.answer(PROMPTS, 6, lambda: None) == expected


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="cannot be loaded by transformers"):
        Generator(str(tmp_path), "float32")
