"""The machine found: what defaults depend on. Reads /proc and /sys; knows no torch and no settings."""

import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

CPU_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
CPU_QUOTA = "/sys/fs/cgroup/cpu.max"
GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")  # NVIDIA's and AMD's


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found: physical cores usable by this process, and what they compute with."""

    cores: int = 2
    bfloat16: bool = False  # the CPU multiplies bfloat16 natively
    gpu: bool = False  # there is a GPU, and torch is not a build without

    @classmethod
    def found(cls) -> "Machine":
        """Look at this machine without importing torch."""
        flags = cpu_flags()
        return cls(
            cores=_usable_cores(),
            bfloat16="avx512_bf16" in flags or "amx_bf16" in flags,
            gpu=_has_gpu(),
        )


def _usable_cores() -> int:
    """Physical cores this process may run on, within the container's quota; at least 1."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    siblings = {_read(CPU_TOPOLOGY.format(cpu)) or str(cpu) for cpu in cpus}  # hyper-threads share an entry
    return max(1, min(len(siblings), _quota(_read(CPU_QUOTA)) or len(siblings)))


def _quota(text: str) -> int | None:
    """Whole cores in a cgroup's `cpu.max` ("200000 100000"), None where it sets no limit."""
    parts = text.split()
    if len(parts) != 2 or parts[0] == "max":
        return None
    return max(1, round(int(parts[0]) / int(parts[1])))


def _has_gpu() -> bool:
    """Whether torch will likely find a GPU, told without importing it."""
    if not any(os.path.exists(driver) for driver in GPU_DRIVERS):
        return False
    try:
        return not metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return False


def cpu_flags() -> frozenset[str]:
    """What the CPU can, as /proc/cpuinfo names it; nothing where there is no such file."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("flags"):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
