"""Part of gpu_check: tokens a second of a whole model with random weights, by us in several ways and by transformers.

The shape is Llama 3.2 1B's; prompts are random tokens, answers greedy and of one length.
"""

import gc
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fairstep.config import EngineConfig
from fairstep.door import Admit, Orders, Sampling
from fairstep.machine import Machine
from fairstep.worker import build
from offline_player import Counts, play
from report import table

LLAMA_1B: dict[str, Any] = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
}
TINY = {
    **LLAMA_1B,
    "vocab_size": 32_000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
WAYS: dict[str, dict[str, Any]] = {
    "ours": {},
    "no graphs": {"graphs": False},
    "no overlap": {"overlap": "off"},
    "neither": {"graphs": False, "overlap": "off"},
    "torch attention": {"attention": "torch"},
}
BATCHES = (1, 32, 128)
PROMPT, ANSWER = 128, 128
GOAL = 0.8  # of the speed at which a decode of one sequence could read all weights


class Ours:
    """Step loop and runner without a front: what offline_player.play drives."""

    def __init__(self, model: Path, settings: dict[str, Any]) -> None:
        options = {name: value for name, value in settings.items() if name != "graphs"}
        config = EngineConfig(prefix_cache=False, inter_token_target_ms=1e6, **options)
        self._worker, self.ready = build(str(model), config.resolved(Machine.found()), lambda what, part: None)
        if not settings.get("graphs", True):
            _without_graphs(self._worker._runner)
        self._sent = 0

    def submit(self, prompt: list[int], answer: int) -> str:
        self._sent += 1
        sampling = Sampling(max_tokens=answer)
        admit = Admit(self._sent, 1, tuple(prompt), len(prompt), sampling, order=self._sent)
        self._worker.apply(Orders(self._sent, admit=(admit,)))
        return str(self._sent)

    def step(self, counts: Counts) -> None:
        for result in self._worker.step().results:
            if result.error:
                raise RuntimeError(result.error)
            counts[str(result.seq)] += len(result.tokens)


def run(out: Path, rehearse: bool) -> dict[str, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = ((1, 2), 16, 4) if rehearse else (BATCHES, PROMPT, ANSWER)
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        weights = random_model(model, TINY if rehearse else LLAMA_1B, device)
        for way, settings in WAYS.items():
            if device == "cpu" and settings.get("attention") != "torch":
                settings = {**settings, "attention": "torch", "overlap": "auto", "graphs": True}
            told[way] = guarded(lambda settings=settings: measured(Ours(model, settings), *sizes))
            print(f"{way}: {told[way]}", flush=True)  # kept even if time runs out
            free()
        told["transformers"] = guarded(lambda: transformers_rates(model, device, *sizes))
    heading = ("", *(f"decode {count} tok/s" for count in sizes[0]), *(f"prompts {count} tok/s" for count in sizes[0]))
    print(table(heading, [(way, *_cells(row, sizes[0])) for way, row in told.items()]))
    row: dict[str, Any] = {"ways": told, "weight_bytes": weights}
    if device == "cuda":
        row |= against_floor(told, weights)
    return row


def measured(engine: Ours, batches: tuple[int, ...], prompt: int, answer: int) -> dict[str, float]:
    """Tokens a second of decodes and of prompts by batch; the better of two runs after one that warms up."""
    rates: dict[str, float] = {}
    for count in batches:
        runs = [play(engine, count, prompt, answer, seed) for seed in range(3)][1:]  # type: ignore[arg-type]
        rates[f"decode {count}"] = max(each["decoded"] / each["decode"] for each in runs)
        rates[f"prompts {count}"] = max(count * prompt / each["first"] for each in runs)
    return rates


@torch.inference_mode()
def transformers_rates(path: Path, device: str, batches: tuple[int, ...], prompt: int, answer: int) -> dict[str, float]:
    """Its generate(), with a batch of prompts of one length."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(device)
    rates: dict[str, float] = {}

    def took(ids: torch.Tensor, tokens: int) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        model.generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False
        )
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    for count in batches:
        ids = torch.randint(1000, 20_000, (count, prompt), device=device)
        took(ids, 2)  # warms up
        first = min(took(ids, 1) for _ in range(2))
        whole = min(took(ids, answer) for _ in range(2))
        rates[f"decode {count}"] = count * (answer - 1) / max(whole - first, 1e-9)
        rates[f"prompts {count}"] = count * prompt / first
    return rates


def random_model(path: Path, shape: dict[str, Any], device: str) -> int:
    """A checkpoint of random weights in bfloat16; how many bytes they are."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**shape, bos_token_id=1, eos_token_id=2, dtype="bfloat16")
    with torch.device(device):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(path)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    del model
    free()
    return size


def against_floor(told: dict[str, Any], weights: int) -> dict[str, Any]:
    """A decode of one sequence beside reading all weights once at the bandwidth measured here."""
    from gpu_timing import peak

    floor = weights / peak().bandwidth
    rate = told["ours"].get("decode 1")
    reached = rate * floor if rate else None
    missed = [f"decode 1: {reached:.2f} of the floor < {GOAL}"] if reached is not None and reached < GOAL else []
    return {"floor_ms": 1000 * floor, "of_floor": reached, "missed": missed}


def guarded(work: Callable[[], dict[str, float]]) -> dict[str, Any]:
    try:
        return dict(work())
    except Exception as error:  # a way that fails is a figure too
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


def free() -> None:
    """Let go of the model before."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _without_graphs(runner: Any) -> None:
    """Every step runs plainly. A switch for measuring alone, so no setting."""
    if hasattr(runner, "_graphs"):
        runner._graphs = type(runner._graphs)(None, 0)


def _cells(row: dict[str, Any], batches: tuple[int, ...]) -> list[str]:
    names = [f"{what} {count}" for what in ("decode", "prompts") for count in batches]
    return [f"{row[name]:.0f}" if name in row else "failed" for name in names]
