"""device_memory.py and what building.py does with it, without a GPU: the largest steps, pages for what they leave."""

from pathlib import Path

import pytest
import torch

from fairstep.clock import ManualClock
from fairstep.config import EngineConfig, Machine
from fairstep.errors import ConfigError
from fairstep.model import building
from fairstep.model.building import Builder, Built, Stopwatch, runner_of
from fairstep.model.device_choice import DeviceChoice
from fairstep.model.device_memory import allocate, largest_plans
from fairstep.model.kv import KVMemory, page_bytes
from fairstep.model.memory_plan import Room
from fairstep.model.sources import resolve
from fairstep.model.spec import LayerShape
from fairstep.stepping.settings import StepSettings
from hand_made_plans import Hand, run
from tiny_models import tiny_llama

CPU = torch.device("cpu")
MIB = 1024**2


def settings(**changes: int) -> StepSettings:
    return StepSettings(
        **{"step_tokens": 100, "seats": 8, "pages": 2, "page_size": 16, "chunk": 64, "context": 512} | changes
    )


def test_the_largest_steps_are_all_seats_decoding_and_all_the_prompt_tokens_there_may_be() -> None:
    decodes, prompts = largest_plans(settings())
    assert [len(piece.tokens) for piece in decodes.slices] == [1] * 8
    assert [len(piece.tokens) for piece in prompts.slices] == [12] * 8
    for plan in (decodes, prompts):
        assert [piece.seat for piece in plan.slices] == list(range(8)) and all(piece.samples for piece in plan.slices)
    assert len(largest_plans(settings(context=5))[1].slices[0].tokens) == 5, "nobody is longer than the context"


class Grudging:
    """Gives memory for so many pages at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[int] = []

    def __call__(self, pages: int) -> KVMemory:
        self.asked.append(pages)
        if pages > self.most:
            raise torch.cuda.OutOfMemoryError
        return KVMemory([LayerShape(1, 4, 4)], pages=pages, page_size=4, dtype=torch.float32, device=CPU)


def test_memory_that_is_not_given_in_one_piece_is_asked_for_in_smaller_ones() -> None:
    device = Grudging(most=80)
    assert allocate(device, 100).pages == 73 and device.asked == [100, 90, 81, 73]
    with pytest.raises(ConfigError, match="gives no memory"):
        allocate(Grudging(most=1), 20)


def built_on(monkeypatch: pytest.MonkeyPatch, path: Path, room: Room, holds: int = 10**6) -> tuple[Builder, Built]:
    """A model as it is before its pages are: on the CPU, said to be a device whose steps take 1 KiB a token."""
    monkeypatch.setattr(building, "free_room", lambda device: room)
    monkeypatch.setattr(
        building,
        "step_bytes",
        lambda make, own, device: 1024 * own.step_tokens if own.step_tokens <= holds else None,
    )
    resolved = EngineConfig(dtype="float32", device="cuda", max_seats=4, step_tokens=256).resolved(Machine())
    assert resolved.kv_memory is None, "a GPU's is known once the model is there"
    builder = Builder(
        resolved, torch.float32, DeviceChoice(CPU, "torch"), lambda what, part: None, Stopwatch(ManualClock())
    )
    return builder, builder.build(resolve(str(path)))


def test_a_model_gets_the_pages_that_its_largest_step_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder, built = built_on(monkeypatch, tiny_llama(tmp_path), Room(16 * MIB, 4 * MIB))
    assert built.settings.pages == 2 and built.settings.context == built.spec.context
    fitted = builder.fitted(built, None)
    page = page_bytes(built.spec.kv_layers, 16, torch.float32)
    assert fitted.settings.pages == fitted.kv.pages == (4 * MIB - 256 * 1024 - MIB) // page
    hands = [Hand(seq, [5, 6, 7, 8 + seq], (1 + seq,)) for seq in range(3)]
    run(runner_of(fitted, fitted.settings), hands, 4, 16)  # type: ignore[arg-type]
    assert fitted.kv.blocks[0][:, 1:4].any() and not fitted.kv.blocks[0][:, 4:].any()


def test_a_smaller_plan_is_made_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder, built = built_on(monkeypatch, tiny_llama(tmp_path), Room(16 * MIB, 4 * MIB), holds=100)
    fitted = builder.fitted(built, 100 * MIB)
    assert (fitted.settings.step_tokens, fitted.settings.chunk) == (64, 64)
    assert any("step_tokens is 64" in note for note in fitted.notes)
    assert any("kv_memory is 0.1 GiB" in note for note in fitted.notes)


def test_a_model_that_leaves_no_room_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder, built = built_on(monkeypatch, tiny_llama(tmp_path), Room(16 * MIB, MIB))
    with pytest.raises(ConfigError, match="the GPU has"):
        builder.fitted(built, None)
