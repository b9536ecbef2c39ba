"""The figures of all kernels, as a table and as a row: timed on a GPU, or what their floors are without one."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from attention_peers import peers
from attention_work import AttentionTensors, AttentionWork, decodes, prompts
from cards import CARDS
from fairstep.kernels.triton.ahead import launches_of
from gpu_timing import Peak, peak, seconds
from report import table
from row_work import RowWork, row_works

# goals, as shares: of the measured bandwidth, of the bandwidth for norms and their like, of another's speed
DECODE_SHARE, ROW_SHARE, OF_FLASHINFER, OF_FLASH_ATTN = 0.7, 0.8, 0.95, 0.6
MUCH_HELD = 0.5e9  # bytes of keys and values from which decodes should near the bandwidth
LONG = 4096
NEAR = 2e-2  # bfloat16 results of two kernels


def untimed(smoke: bool) -> dict[str, Any]:
    """What each call must move and compute."""
    rows: dict[str, dict[str, Any]] = {}
    for work in works(smoke):
        operations = work.operations if isinstance(work, AttentionWork) else 0
        rows[work.name] = {
            "launches": len(launches_of(_call(work, torch.device("meta")))),
            "bytes": work.moved,
            "operations": operations,
            "floor_us": {card.name: round(1e6 * card.floor(work.moved, operations), 2) for card in CARDS},
        }
    print("No GPU here: nothing was timed. Bytes and operations a call, and the microseconds they take at least.\n")
    heading = ("", "launches", "MB", "GFLOP", *(card.name for card in CARDS))
    lines = [
        (name, row["launches"], f"{row['bytes'] / 1e6:.2f}", f"{row['operations'] / 1e9:.2f}", *_floors(row))
        for name, row in rows.items()
    ]
    print(table(heading, lines))
    return {"timed": False, "works": rows}


def timed(smoke: bool) -> dict[str, Any]:
    """Each call's time on this GPU; what fails is told and leaves the rest alone."""
    most = peak()
    rows: dict[str, dict[str, Any]] = {}
    for work in works(smoke):
        try:
            rows[work.name] = attention_row(work, most) if isinstance(work, AttentionWork) else row_row(work, most)
        except Exception as error:  # one kernel's failure is a figure too
            rows[work.name] = {"error": f"{type(error).__name__}: {error}"}
            print(f"{work.name}: {rows[work.name]['error']}", file=sys.stderr)
        torch.cuda.empty_cache()
        print(f"{work.name}: {rows[work.name].get('us', 0):.1f} us", file=sys.stderr)
    print(timed_table(rows))
    return {
        "timed": True,
        "gpu": torch.cuda.get_device_name(),
        "measured_peak": {"bytes_per_second": most.bandwidth, "operations_per_second": most.operations},
        "works": rows,
        "missed": missed(rows),
    }


def works(smoke: bool) -> list[AttentionWork | RowWork]:
    return [*decodes(smoke), *prompts(smoke), *row_works(smoke)]


def attention_row(work: AttentionWork, most: Peak) -> dict[str, Any]:
    tensors = work.tensors(torch.device("cuda"))
    mine = seconds(tensors.ours)
    row = _row(work.moved, mine, most)
    row["tflops"] = work.operations / mine / 1e12
    row["of_operations"] = work.operations / mine / most.operations
    row["of"], row["agrees"] = {}, {}
    ours = tensors.ours().clone()
    for name, prepare in peers(tensors):
        try:
            call = prepare()
            row["agrees"][name] = bool(torch.allclose(call().float(), ours.float(), atol=NEAR, rtol=NEAR))
            row["of"][name] = seconds(call) / mine
        except Exception as error:  # another version of their interface, or a shape they don't take
            row["of"][name] = f"{type(error).__name__}: {error}"
    row["goals"] = _attention_goals(work, row)
    return row


def row_row(work: RowWork, most: Peak) -> dict[str, Any]:
    row = _row(work.moved, seconds(work.prepare(torch.device("cuda"))), most)
    large = work.moved >= 50e6  # what fits a GPU's cache is not bound by memory
    row["goals"] = {"bandwidth": [row["of_bandwidth"], ROW_SHARE]} if work.bound and large else {}
    return row


def missed(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Goals that were not reached, in words."""
    return [
        f"{name}: {goal} {reached:.2f} < {wanted}"
        for name, row in rows.items()
        for goal, (reached, wanted) in row.get("goals", {}).items()
        if reached < wanted
    ]


def timed_table(rows: dict[str, dict[str, Any]]) -> str:
    names = sorted({name for row in rows.values() for name in row.get("of", {})})
    lines = []
    for name, row in rows.items():
        if "error" in row:
            lines.append((name, "failed", *[""] * (4 + len(names))))
            continue
        ratios = (row.get("of", {}).get(peer) for peer in names)
        lines.append(
            (
                name,
                f"{row['us']:.1f}",
                f"{row['gb_per_second']:.0f}",
                f"{row['of_bandwidth']:.0%}",
                f"{row['tflops']:.1f}" if "tflops" in row else "",
                f"{row['of_operations']:.0%}" if "of_operations" in row else "",
                *(f"{ratio:.2f}" if isinstance(ratio, float) else "-" for ratio in ratios),
            )
        )
    heading = ("", "us", "GB/s", "of peak", "TFLOP/s", "of peak", *(f"x {name}" for name in names))
    return table(heading, lines)


def _row(moved: int, took: float, most: Peak) -> dict[str, Any]:
    return {"us": 1e6 * took, "gb_per_second": moved / took / 1e9, "of_bandwidth": moved / took / most.bandwidth}


def _attention_goals(work: AttentionWork, row: dict[str, Any]) -> dict[str, list[float]]:
    of = {name: ratio for name, ratio in row["of"].items() if isinstance(ratio, float)}
    goals: dict[str, list[float]] = {}
    if work.queries == 1:
        if work.held >= MUCH_HELD:
            goals["bandwidth"] = [row["of_bandwidth"], DECODE_SHARE]
        if work.context >= LONG and "flashinfer" in of:
            goals["flashinfer"] = [of["flashinfer"], OF_FLASHINFER]
    elif "flash-attn 3" in of:
        goals["flash-attn 3"] = [of["flash-attn 3"], OF_FLASH_ATTN]
    return goals


def _call(work: AttentionWork | RowWork, device: torch.device) -> Callable[[], object]:
    return AttentionTensors(work, device).ours if isinstance(work, AttentionWork) else work.prepare(device)


def _floors(row: dict[str, Any]) -> list[str]:
    return [f"{row['floor_us'][card.name]:.1f}" for card in CARDS]
