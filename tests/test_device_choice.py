"""Where a model is computed and by which attention: what settings and the machine lead to, and what is refused."""

import importlib.util
from typing import Any

import pytest
import torch

from fairstep.errors import ConfigError
from fairstep.model.device_choice import choose_device


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """machine(gpu, triton, interpret) makes torch and triton say so."""

    def make(*, gpu: bool = False, triton: bool = True, interpret: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: (name if triton else None) if name == "triton" else find(name)
        )
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        if interpret is not None:
            monkeypatch.setenv("TRITON_INTERPRET", interpret)

    return make


def test_a_gpu_computes_with_triton(machine: Any) -> None:
    machine(gpu=True)
    for device in ("auto", "cuda"):
        for attention in ("auto", "triton"):
            chosen = choose_device(device, attention)
            assert (chosen.device, chosen.attention, chosen.notes) == (torch.device("cuda", 0), "triton", ())


def test_a_cpu_computes_with_torch_even_beside_a_gpu(machine: Any) -> None:
    machine()
    assert (choose_device("auto", "auto").device.type, choose_device("auto", "auto").attention) == ("cpu", "torch")
    machine(gpu=True)
    assert (choose_device("cpu", "auto").device.type, choose_device("cpu", "auto").attention) == ("cpu", "torch")


def test_torch_can_be_asked_for_on_a_gpu(machine: Any) -> None:
    machine(gpu=True)
    chosen = choose_device("auto", "torch")
    assert (chosen.device.type, chosen.attention) == ("cuda", "torch")


def test_a_gpu_asked_for_in_vain_is_an_error(machine: Any) -> None:
    machine()
    with pytest.raises(ConfigError, match=r"device is cuda, but torch .* finds no GPU here: set it to cpu or auto"):
        choose_device("cuda", "auto")


@pytest.mark.parametrize("interpret", [None, "0", ""])
def test_triton_on_a_cpu_is_refused_in_words(machine: Any, interpret: str | None) -> None:
    machine(interpret=interpret)
    with pytest.raises(ConfigError, match="attention is triton, whose kernels run on a GPU, and the device is the CPU"):
        choose_device("auto", "triton")
    machine(gpu=True, interpret=interpret)
    with pytest.raises(ConfigError, match="the device is the CPU"):
        choose_device("cpu", "triton")


def test_triton_is_interpreted_on_a_cpu_where_the_environment_says_so(machine: Any) -> None:
    machine(interpret="1")
    assert (choose_device("auto", "triton").device.type, choose_device("auto", "triton").attention) == ("cpu", "triton")
    assert choose_device("auto", "auto").attention == "torch"  # which is never slower there


def test_without_triton_a_gpu_computes_with_torch_and_a_note_says_so(machine: Any) -> None:
    machine(gpu=True, triton=False)
    chosen = choose_device("auto", "auto")
    assert (chosen.device.type, chosen.attention) == ("cuda", "torch")
    assert chosen.notes == (
        "computed by torch, which is slower than our kernels: triton is not installed: pip install 'fairstep[gpu]'",
    )
    with pytest.raises(ConfigError, match="attention is triton, but triton is not installed"):
        choose_device("auto", "triton")
