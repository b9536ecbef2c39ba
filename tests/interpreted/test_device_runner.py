"""device_runner.py under triton's interpreter: the answers of the plain runner by torch, in the plain loop and in the
overlapped one with recorded steps, over pages that are NaN where nothing was written."""

from itertools import count

import pytest
import torch

from fairstep.clock import ManualClock
from fairstep.door import Admit, Orders, Result, Sampling
from fairstep.model.backend import TorchBackend
from fairstep.model.decoder import Decoder
from fairstep.model.device_runner import DeviceRunner
from fairstep.model.fused_decoder import FusedDecoder
from fairstep.model.graphs import Step
from fairstep.model.kv import KVMemory
from fairstep.model.loading import LoadedModel, load
from fairstep.model.runner import TorchRunner
from fairstep.model.sources import resolve
from fairstep.model.triton_backend import TritonBackend
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.pages import NULL_PAGE
from fairstep.stepping.settings import StepSettings
from fairstep.worker import Worker
from tiny_models import tiny_llama

CPU = torch.device("cpu")
IDS = torch.randint(3, 300, (200,), generator=torch.Generator().manual_seed(0)).tolist()
SETTINGS = StepSettings(step_tokens=12, seats=3, pages=12, page_size=8, chunk=12, context=64)
REQUESTS = (
    (IDS[:5], Sampling(max_tokens=6)),
    (IDS[20:41], Sampling(max_tokens=5, temperature=1.0, seed=5, logprobs=2)),
    (IDS[50:59], Sampling(max_tokens=6, temperature=0.8, top_p=0.9, seed=6, repetition=1.3, presence=0.5)),
    (IDS[:18], Sampling(max_tokens=4, temperature=1.1, top_k=20, seed=7, stop_ids=(1,), prompt_logprobs=1)),
)


class Again:
    """A Recorder that computes anew what it recorded, over the same memory."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, step: Step) -> Step:
        self.recorded += 1
        return step


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = tiny_llama(tmp_path_factory.mktemp("tiny"))
    return load(resolve(str(path)), torch.float32, CPU, lambda what, part: None)


def memory(loaded: LoadedModel) -> KVMemory:
    return KVMemory(loaded.spec.kv_layers, pages=SETTINGS.pages, page_size=8, dtype=torch.float32, device=CPU)


def device_runner(loaded: LoadedModel, recorder: Again | None) -> DeviceRunner:
    kv = memory(loaded)
    for block in kv.blocks:
        block[:, NULL_PAGE + 1 :] = float("nan")
    backend = TritonBackend(kv, sequences=SETTINGS.seats, longest=SETTINGS.context)
    return DeviceRunner(FusedDecoder(loaded.spec, dict(loaded.tensors), backend), kv, SETTINGS, recorder)


def answered(runner: DeviceRunner | TorchRunner, ahead: int) -> list[list[Result]]:
    """What was told of each request."""
    settings = StepSettings(**{name: getattr(SETTINGS, name) for name in SETTINGS.__slots__} | {"ahead": ahead})
    worker = Worker(StepLoop(settings, StepModel()), runner, ManualClock())
    admits = [Admit(seq, 1, tuple(ids), len(ids), how, order=seq) for seq, (ids, how) in enumerate(REQUESTS)]
    worker.apply(Orders(1, admit=tuple(admits)))
    told: list[list[Result]] = [[] for _ in REQUESTS]
    while worker.has_work:
        for result in worker.step().results:
            assert result.outcome != "error", result.error
            told[result.seq].append(result)
        worker.check()
    runner.check()
    return told


def tokens(told: list[list[Result]]) -> list[list[int]]:
    return [[token for result in each for token in result.tokens] for each in told]


@pytest.fixture(scope="module")
def plain(loaded: LoadedModel) -> list[list[Result]]:
    kv = memory(loaded)
    return answered(TorchRunner(Decoder(loaded.spec, dict(loaded.tensors), TorchBackend(kv)), kv), 0)


@pytest.mark.parametrize("ahead", [0, 1])
def test_it_answers_as_torch_does(loaded: LoadedModel, plain: list[list[Result]], ahead: int) -> None:
    recorder = Again() if ahead else None
    told = answered(device_runner(loaded, recorder), ahead)
    assert tokens(told) == tokens(plain)
    for mine, theirs in zip(told, plain, strict=True):
        ours = [logprobs for result in mine for logprobs in (*result.prompt_logprobs, *result.logprobs)]
        right = [logprobs for result in theirs for logprobs in (*result.prompt_logprobs, *result.logprobs)]
        assert [each.ids for each in ours] == [each.ids for each in right]
        for one, other in zip(ours, right, strict=True):
            assert one.rank == other.rank and one.values == pytest.approx(other.values, abs=1e-4)
    assert recorder is None or recorder.recorded


@pytest.mark.parametrize("ahead", [0, 1])
def test_after_a_launch_that_failed_draws_go_on_as_if_it_had_not_been(
    loaded: LoadedModel, plain: list[list[Result]], ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = device_runner(loaded, None)
    calls, logits = count(), runner.model.logits

    def fails_once(rows: torch.Tensor) -> torch.Tensor:
        if next(calls) == 5:
            raise RuntimeError("out of memory, say")
        return logits(rows)

    monkeypatch.setattr(runner.model, "logits", fails_once)
    assert tokens(answered(runner, ahead)) == tokens(plain)
    assert next(calls) > 6


def test_warming_up_leaves_nothing_behind(loaded: LoadedModel) -> None:
    runner = device_runner(loaded, None)
    runner.warm_up()
    runner.check()
