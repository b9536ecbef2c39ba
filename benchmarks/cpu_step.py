"""What a step alone takes, without a scheduler or HTTP: decodes at 1, 8 and 32 and a prompt, logits included.

The C++ step, with weights of 16, 8 and 4 bits, is compared with the decoder by torch, and with what the machine can do:
all weights read once (what a decode of few sequences is bound by) and products in registers (what a prompt is bound
by), both measured beside it.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from fairstep.worker import spin_shortly

spin_shortly()  # as the worker does, before torch

import torch  # noqa: E402

from fairstep.door import Sampling  # noqa: E402
from fairstep.kernels.cpu.build import built, usable_levels  # noqa: E402
from fairstep.kernels.cpu.library import Library  # noqa: E402
from fairstep.kernels.cpu.memory import zeros  # noqa: E402
from fairstep.kernels.cpu.pack import BFLOAT16, FORMS  # noqa: E402
from fairstep.machine import Machine, cpu_flags  # noqa: E402
from fairstep.model.backend import TorchBackend  # noqa: E402
from fairstep.model.batch import StepBatch  # noqa: E402
from fairstep.model.computed import CausalModel  # noqa: E402
from fairstep.model.cpu_decoder import CpuDecoder  # noqa: E402
from fairstep.model.decoder import Decoder  # noqa: E402
from fairstep.model.kv import KVMemory  # noqa: E402
from fairstep.model.loading import load  # noqa: E402
from fairstep.model.sources import resolve  # noqa: E402
from fairstep.model.spec import ModelSpec  # noqa: E402
from fairstep.stepping.plan import Slice  # noqa: E402
from report import emit, table  # noqa: E402

CPU = torch.device("cpu")
PAGE = 16
READ_BYTES = 256 * 2**20
NEAR_PIECES = 20_000
KINDS = {"bfloat16": "none", "int8": "int8", "int4": "int4"}  # by what --quantize calls them
PEAKS = {"bfloat16": BFLOAT16, "int8": FORMS["Q8_0"].number, "int4": FORMS["Q4_1"].number}
HEADINGS = ("step", "weights", "ms", "tok/s", "to bfloat16", "of the limit")


def decodes(count: int, context: int) -> StepBatch:
    """One token each of some sequences, whose pages lie anywhere."""
    each = -(-context // PAGE)
    pages = torch.randperm(count * each, generator=torch.Generator().manual_seed(0)) + 1
    return StepBatch([_slice(n, context - 1, 1, chosen) for n, chosen in enumerate(pages.split(each))], PAGE, CPU)


def prompt(length: int) -> StepBatch:
    return StepBatch([_slice(0, 0, length, torch.arange(1, 1 + -(-length // PAGE)))], PAGE, CPU)


def _slice(seq: int, start: int, count: int, pages: torch.Tensor) -> Slice:
    tokens = tuple((7919 * n + 31 * seq) % 1000 for n in range(start, start + count))
    return Slice(seq, 1, start, tokens, tuple(pages.tolist()), True, 0, Sampling(), count == 1)


def steps(batches: dict[str, StepBatch], models: dict[str, CausalModel], count: int) -> dict[str, dict[str, float]]:
    """Median milliseconds by batch and model, the models by turns, so that a slow spell meets all."""
    found: dict[str, dict[str, list[float]]] = {name: {model: [] for model in models} for name in batches}
    for turn in range(count + 1):
        for name, batch in batches.items():
            for kind, model in models.items():
                seconds = timed(lambda model=model, batch=batch: whole_step(model, batch))
                if turn:  # the first warms up
                    found[name][kind].append(1000 * seconds)
    return {name: {kind: statistics.median(times) for kind, times in row.items()} for name, row in found.items()}


@torch.inference_mode()
def whole_step(model: CausalModel, batch: StepBatch) -> None:
    model.logits(model.hidden(batch).index_select(0, batch.logit_rows))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def limits(library: Library, threads: int, count: int, kind: int = BFLOAT16) -> tuple[float, float]:
    """Gigabytes read and billions of operations in products of a kind a second, the best of some tries."""
    memory = zeros((READ_BYTES,), torch.uint8).fill_(1)  # what was never written to is read from nowhere
    read = min(timed(lambda: library.read_all(memory.data_ptr(), READ_BYTES, threads)) for _ in range(count))
    kept = torch.zeros(1)
    operations = library.multiply_near(1, kind, 1, kept.data_ptr()) * NEAR_PIECES
    near = min(timed(lambda: library.multiply_near(NEAR_PIECES, kind, threads, kept.data_ptr())) for _ in range(count))
    return READ_BYTES / read / 1e9, operations / near / 1e9


def work_of(spec: ModelSpec, tokens: int, rows: int) -> tuple[float, float]:
    """Gigabytes of bfloat16 weights that a step reads, and billions of operations of its products, not of attention."""
    width, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    layer = spec.hidden_size * (2 * width + 2 * kv + 3 * spec.intermediate_size)
    layers, head = spec.layers * layer, spec.vocab_size * spec.hidden_size
    return 2 * (layers + head) / 1e9, 2 * (layers * tokens + head * rows) / 1e9


def built_models(name: str, library: Library, pages: int, threads: int) -> dict[str, CausalModel]:
    """By kind of weight, and torch's."""

    def compiled(quantize: str) -> CpuDecoder:
        loaded = load(resolve(name), torch.bfloat16, CPU, keep_blocks=quantize != "none")
        kv = memory(loaded.spec)
        return CpuDecoder(loaded.spec, loaded.tensors, kv, library, threads, loaded.blocks, quantize)

    def memory(spec: ModelSpec) -> KVMemory:
        return KVMemory(spec.kv_layers, pages=pages, page_size=PAGE, dtype=torch.bfloat16, device=CPU)

    models: dict[str, CausalModel] = {kind: compiled(quantize) for kind, quantize in KINDS.items()}
    loaded = load(resolve(name), torch.bfloat16, CPU)
    return {**models, "torch": Decoder(loaded.spec, loaded.tensors, TorchBackend(memory(loaded.spec)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="(default: %(default)s)")
    parser.add_argument("--context", type=int, default=160, help="tokens of each decode (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=256, help="tokens of the prompt (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=11, help="steps of each kind (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=Machine.found().cores, help="(default: the cores found)")
    parser.add_argument("--level", choices=[level.name for level in usable_levels(cpu_flags())], help="(default: best)")
    parser.add_argument("--smoke", action="store_true", help="a step of each kind: does it work at all")
    args = parser.parse_args()
    if args.smoke:
        args.steps = 1
    torch.set_num_threads(args.threads)
    level = next(level for level in usable_levels(cpu_flags()) if args.level in (None, level.name))
    library = Library(level, built(level))
    batches = {f"decode {count}": decodes(count, args.context) for count in (1, 8, 32)}
    batches[f"prompt {args.prompt}"] = prompt(args.prompt)
    pages = 32 * -(-args.context // PAGE) + -(-args.prompt // PAGE)
    models = built_models(args.model, library, pages, args.threads)
    milliseconds = steps(batches, models, args.steps)
    found = {kind: limits(library, args.threads, args.steps, number) for kind, number in PEAKS.items()}
    bandwidth = max(read for read, _ in found.values())
    rows = []
    for name, times in milliseconds.items():
        for kind, taken in times.items():
            model, share = models[kind], None
            if isinstance(model, CpuDecoder):
                _, work = work_of(model.spec, len(batches[name].ids), len(batches[name].logit_rows))
                share = 1000 * max(model.weight_bytes / 1e9 / bandwidth, work / found[kind][1]) / taken
            rate, ratio = 1000 * len(batches[name].ids) / taken, times["bfloat16"] / taken
            row = {"step": name, "weights": kind, "ms": taken, "tokens_per_second": rate, "to_bfloat16": ratio}
            rows.append({**row, "share_of_limit": share})
    print(table(HEADINGS, [line(row) for row in rows]))
    peaks = {kind: peak for kind, (_, peak) in found.items()}
    told = ", ".join(f"{peak:.0f} ({kind})" for kind, peak in peaks.items())
    print(f"{level.name}, {args.threads} threads: {bandwidth:.1f} GB/s read; billions of operations a second: {told}")
    machine = {"level": level.name, "threads": args.threads, "read_gb_s": bandwidth, "peak_gops": peaks}
    emit("cpu_step", {"steps": rows, "context": args.context, **machine})


def line(row: dict[str, Any]) -> tuple[str, ...]:
    share = row["share_of_limit"]
    numbers = f"{row['ms']:.2f}", f"{row['tokens_per_second']:.0f}", f"{row['to_bfloat16']:.2f}"
    return row["step"], row["weights"], *numbers, "" if share is None else f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
