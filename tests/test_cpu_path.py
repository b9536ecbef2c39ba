"""When a model is computed by the C++ step, and what is said where it isn't."""

from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType

from cpu_libraries import LEVELS, library
from fairstep.door import Ready, Sampling
from fairstep.model.building import COMPILING, build_runner
from fairstep.model.cpu_decoder import CpuDecoder
from fairstep.model.decoder import Decoder
from fairstep.model.runner import TorchRunner
from fairstep.serving.serve_command import computed_by
from hand_made_plans import Hand, run
from pairs import config
from tiny_gguf import write_gguf
from tiny_models import tiny_llama

SLOWER = "computed by torch, which is slower than fairstep's C++ step: "


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library(LEVELS[0])
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


def build(model: Path, **changes: Any) -> tuple[TorchRunner, Ready, list[str]]:
    told: list[str] = []
    runner, _, ready = build_runner(str(model), config(**changes), lambda what, part: told.append(what))
    return runner, ready, told


def test_bfloat16_is_computed_by_the_compiled_step(model: Path) -> None:
    runner, ready, told = build(model, dtype="bfloat16")
    assert isinstance(runner.model, CpuDecoder)
    assert (ready.path, ready.dtype, ready.notes) == (f"cpu:{LEVELS[0]}", "bfloat16", ())
    assert COMPILING not in told  # it was there
    assert computed_by(ready.path) == f"fairstep's C++ step ({LEVELS[0]})"


@pytest.mark.parametrize(
    ("quantize", "weights"),
    [("auto", "bfloat16"), ("none", "bfloat16"), ("int8", "Q8_0"), ("int4", "Q4_1, output Q8_0")],
)
def test_integer_weights_are_computed_with_where_they_are_asked_for(model: Path, quantize: str, weights: str) -> None:
    runner, ready, _ = build(model, dtype="auto" if quantize.startswith("int") else "bfloat16", quantize=quantize)
    assert isinstance(runner.model, CpuDecoder)
    assert (ready.path, ready.dtype, ready.weights, ready.notes) == (f"cpu:{LEVELS[0]}", "bfloat16", weights, ())
    assert ready.parameters == build(model)[1].parameters


def test_a_file_in_blocks_is_computed_in_them_unless_it_is_to_be_dequantised(model: Path, tmp_path: Path) -> None:
    directory = tiny_llama(tmp_path / "model", hidden=128, heads=4, kv_heads=2)
    file = write_gguf(tmp_path / "model.gguf", directory, kind=GGMLQuantizationType.Q4_0)
    assert build(file, dtype="bfloat16")[1].weights == "Q4_0"
    assert build(file, dtype="bfloat16", quantize="none")[1].weights == "bfloat16"
    assert build(file, dtype="bfloat16", quantize="int8")[1].weights == "Q8_0"
    _, ready, _ = build(file, dtype="float32")
    assert (ready.path, ready.weights) == ("fairstep", "")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_formats_stay_with_torch_and_nothing_is_lost(model: Path, dtype: str) -> None:
    runner, ready, _ = build(model, dtype=dtype)
    assert isinstance(runner.model, Decoder)
    assert (ready.path, ready.notes) == ("fairstep", ())
    assert computed_by(ready.path) == "fairstep's decoder"


def test_what_does_not_fit_is_told_in_a_note(model: Path) -> None:
    runner, ready, _ = build(model, dtype="bfloat16", page_size=24)
    assert isinstance(runner.model, Decoder)
    assert (ready.path, ready.notes) == ("fairstep", (f"{SLOWER}page_size is 24, not a multiple of 16",))


def test_a_build_without_vector_instructions_keeps_no_blocks_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tiny_llama(tmp_path / "model", hidden=128, heads=4, kv_heads=2)
    file = write_gguf(tmp_path / "model.gguf", directory, kind=GGMLQuantizationType.Q4_0)
    portable = library(LEVELS[-1])
    monkeypatch.setattr("fairstep.model.building.best_library", lambda flags, compiling: portable)
    assert build(file, dtype="bfloat16")[1].weights == "bfloat16"
    assert build(file, dtype="bfloat16", quantize="int4")[1].weights == "Q4_0"


def test_integer_weights_that_torch_cannot_have_are_told_in_the_note(model: Path) -> None:
    runner, ready, _ = build(model, dtype="bfloat16", page_size=24, quantize="int8")
    assert isinstance(runner.model, Decoder)
    assert ready.weights == ""
    assert ready.notes == (
        "computed by torch, which is slower than fairstep's C++ step, and not with integer weights: "
        "page_size is 24, not a multiple of 16",
    )


def test_without_a_compiler_torch_computes_and_a_note_says_so(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _, ready, told = build(model, dtype="bfloat16")
    assert ready.path == "fairstep"
    assert ready.notes == (f"{SLOWER}no C++ compiler: CXX is no-such-compiler, which is not installed",)
    assert COMPILING not in told


def test_compiling_is_told(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert COMPILING in build(model, dtype="bfloat16")[2]


def test_a_seed_gives_the_same_tokens_whoever_else_is_served(model: Path) -> None:
    def hands(count: int) -> list[Hand]:
        sampling = Sampling(temperature=1.0, seed=5, max_tokens=100)
        prompts = [[(7 * n + seq) % 300 for n in range(3 + 11 * seq)] for seq in range(count)]
        return [Hand(n, prompt, tuple(range(1 + n * 6, 7 + n * 6)), sampling) for n, prompt in enumerate(prompts)]

    runner, _, _ = build(model, dtype="bfloat16", threads=2)
    alone, together = hands(5), hands(5)
    for hand in alone:
        run(runner, [hand], 20, 7)
    run(runner, together, 20, 16)
    assert [hand.outputs for hand in together] == [hand.outputs for hand in alone]
    assert len({tuple(hand.outputs) for hand in alone}) > 1


def test_warming_up_leaves_no_trace(model: Path) -> None:
    runner, _, _ = build(model, dtype="bfloat16")
    assert not any(part.any() for layer in runner.kv.layers for part in layer)
    runner.check()
