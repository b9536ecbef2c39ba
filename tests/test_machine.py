"""What is found of a machine."""

import pytest

from fairstep import machine
from fairstep.machine import Machine


def test_this_machine_has_a_core() -> None:
    assert Machine.found().cores >= 1


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("", None)],
)
def test_a_container_quota_in_whole_cores(text: str, cores: int | None) -> None:
    assert machine._quota(text) == cores


def test_hyper_threads_count_as_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    files = {machine.CPU_TOPOLOGY.format(cpu): text for cpu, text in siblings.items()}
    monkeypatch.setattr(machine, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(siblings), raising=False)
    assert machine._usable_cores() == 2


def test_a_machine_that_tells_nothing_counts_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: "")
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {4, 5, 6}, raising=False)
    assert machine._usable_cores() == 3


@pytest.mark.parametrize(
    ("drivers", "torch", "gpu"),
    [
        (["/dev/nvidiactl"], "2.13.0+cu130", True),
        (["/dev/kfd"], "2.13.0", True),
        (["/dev/nvidiactl"], "2.13.0+cpu", False),
        ([], "2.13.0", False),
        (["/dev/kfd"], None, False),
    ],
)
def test_a_gpu_is_one_that_torch_was_built_for(
    drivers: list[str], torch: str | None, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if torch is None:
            raise machine.metadata.PackageNotFoundError(package)
        return torch

    monkeypatch.setattr(machine.os.path, "exists", lambda path: path in drivers)
    monkeypatch.setattr(machine.metadata, "version", version)
    assert machine._has_gpu() is gpu
