"""The whole engine by Triton kernels, interpreted, gives the torch backend's tokens: prompts that join decodes, prefix
hits, preemption, windows, softcaps, seeded draws. Pages are NaN until they are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fairstep import Engine, EngineConfig, SamplingParams
from fairstep.errors import ConfigError
from fairstep.model import device_runner
from fairstep.model.building import build_runner
from fairstep.model.fused_decoder import FusedDecoder
from fairstep.model.runner import TorchRunner
from fairstep.serving.serve_command import computed_by
from fairstep.stepping.pages import NULL_PAGE
from loop_drive import Course, Drive
from pairs import config
from tiny_models import tiny_family, tiny_llama
from tiny_others import tiny_other

BACKENDS = ("torch", "triton")


@pytest.fixture(autouse=True)
def a_short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled here, and all that is warmed up runs in tests."""
    monkeypatch.setattr(device_runner, "WARM_UP_LENGTHS", (1,))
    monkeypatch.setattr(device_runner, "WARM_UP_DRAWS", device_runner.WARM_UP_DRAWS[:1])


def prompt(length: int, seed: int = 0) -> list[int]:
    random = torch.Generator().manual_seed(1000 * seed + length)
    return torch.randint(2, 300, (length,), generator=random).tolist()


def poison(runner: TorchRunner) -> None:
    for block in runner.kv.blocks:
        block[:, NULL_PAGE + 1 :] = float("nan")


def drives(path: Path, changes: dict[str, Any], **settings: Any) -> list[Drive]:
    """A step loop over the torch backend, and one over Triton's."""
    made = []
    for backend in BACKENDS:
        values = {"page_size": 8, "kv_memory": "256KiB", "max_model_len": 128, **changes, "attention": backend}
        runner, own, ready = build_runner(str(path), config(**values), lambda what, part: None)
        assert ("triton" in ready.path) == (backend == "triton")
        if backend == "triton":
            poison(runner)
        made.append(Drive(runner, own, **settings))
    return made


def same(made: Sequence[Drive], prompts: list[list[int]], count: int, **options: Any) -> Course:
    """What both answer."""
    wanted, got = (drive.answer(prompts, count, **options) for drive in made)
    assert got.outputs == wanted.outputs
    assert [plan.slices for plan in got.plans] == [plan.slices for plan in wanted.plans]
    return got


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"), layers=2)


def test_prompts_that_join_decodes(llama: Path) -> None:
    course = same(drives(llama, {"step_tokens": 12, "chunk": 8}), [prompt(n) for n in (5, 17, 1)], 5)
    assert any({part.decode for part in plan.slices} == {True, False} for plan in course.plans)
    assert any({part.decode for part in plan.slices} == {True} for plan in course.plans)


def test_prefix_hits(llama: Path) -> None:
    made = drives(llama, {})
    shared = prompt(17)
    same(made, [shared], 2)
    course = same(made, [shared + prompt(n, 1) for n in (1, 6)], 4)
    assert course.cached == 2 * 16


def test_preemption(llama: Path) -> None:
    course = same(drives(llama, {}, pages=5), [prompt(n) for n in (7, 14)], 14)
    assert course.preemptions > 0


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_windows_softcaps_and_norms_past_the_window(family: str, tmp_path: Path) -> None:
    """gemma2: windows and both softcaps; gemma3: norms of heads, and layers with a rope of their own."""
    same(drives(tiny_family(tmp_path, family), {"chunk": 8}), [prompt(n) for n in (13, 3)], 4)


def test_padded_batches(llama: Path) -> None:
    """Slices of no sequence are computed on the null page, which ends up empty."""
    course = same(drives(llama, {"batching": "padded"}), [prompt(9), prompt(3)], 3, stagger=0)
    assert any(plan.padding for plan in course.plans)


@pytest.mark.parametrize("name", ["gpt_oss", "deepseek_v3"])
def test_other_architectures_by_transformers_own_code(name: str, tmp_path: Path) -> None:
    """gpt_oss: sinks and windows; deepseek_v3: keys and values of different sizes."""
    same(drives(tiny_other(tmp_path, name), {"chunk": 8}), [prompt(n) for n in (12, 2)], 3)


def test_seeded_draws_through_the_engine(llama: Path) -> None:
    params = [
        SamplingParams(max_tokens=5, temperature=1.0, seed=3, ignore_eos=True),
        SamplingParams(max_tokens=5, temperature=0.7, top_p=0.9, top_k=40, seed=4, ignore_eos=True),
        SamplingParams(max_tokens=5, temperature=1.2, min_p=0.02, presence_penalty=0.5, seed=5, ignore_eos=True),
    ]
    prompts = [prompt(9), prompt(4), prompt(9)]
    answers = []
    for backend in BACKENDS:
        settings = EngineConfig(dtype="float32", attention=backend, threads=1, max_seats=4, kv_memory="256KiB")
        with Engine(str(llama), settings) as engine:
            answers.append([done.token_ids for done in engine.generate(prompts, params)])
    assert answers[0] == answers[1]
    assert answers[0][0] != answers[0][2]  # the same prompt, another seed


def test_what_computes_is_told(llama: Path) -> None:
    _, _, ready = build_runner(str(llama), config(attention="triton"), lambda what, part: None)
    assert (ready.path, ready.device, ready.notes) == ("triton", "cpu", ())
    assert computed_by(ready.path) == "fairstep's Triton kernels"
    runner, _, ready = build_runner(
        str(llama), config(attention="triton", quantize="int8", dtype="bfloat16"), lambda what, part: None
    )
    assert isinstance(runner.model, FusedDecoder)
    assert ready.notes == ("integer weights are those of fairstep's C++ step on a CPU: quantize int8 is not used",)


def test_heads_too_wide_for_the_kernels_are_refused_in_words(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path, head_dim=264, heads=1, kv_heads=1, layers=1)
    with pytest.raises(ConfigError, match="attention is triton, but heads of 264 dimensions are wider"):
        build_runner(str(path), config(attention="triton"), lambda what, part: None)
