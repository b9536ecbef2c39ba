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
