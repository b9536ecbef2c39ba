"""Attention to measure: decodes and prompts of one shape, with pages anywhere, and what they must move and compute."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fairstep.kernels.triton.attention import AttentionConfigs, make_scratch, paged_attention

PAGE = 16
DTYPE = torch.bfloat16


@dataclass(frozen=True)
class AttentionWork:
    """Sequences of one length. queries: the last of each one's `context` positions; one is a decode.

    Heads as in Llama 3 8B, unless said otherwise.
    """

    sequences: int
    queries: int
    context: int
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128

    @property
    def name(self) -> str:
        if self.queries == 1:
            return f"decode {self.sequences} x {self.context}"
        past = self.context - self.queries
        return f"prefill {self.sequences} x {self.queries}" + (f" after {past}" if past else "")

    @property
    def held(self) -> int:
        """Bytes of the keys and values read, each once."""
        return 2 * self.sequences * self.context * self.kv_heads * self.dim * DTYPE.itemsize

    @property
    def moved(self) -> int:
        """Bytes at least: keys, values, queries and results."""
        return self.held + 2 * self.sequences * self.queries * self.heads * self.dim * DTYPE.itemsize

    @property
    def operations(self) -> int:
        """Of both products, over what each query sees."""
        seen = self.queries * self.context - self.queries * (self.queries - 1) // 2
        return 4 * self.sequences * seen * self.heads * self.dim

    def tensors(self, device: torch.device) -> "AttentionTensors":
        return AttentionTensors(self, device)


class AttentionTensors:
    """The operands of an AttentionWork on a device."""

    def __init__(self, work: AttentionWork, device: torch.device) -> None:
        self.work = work
        each = -(-work.context // PAGE)
        self.tables = (torch.randperm(work.sequences * each, device=device) + 1).view(work.sequences, each).int()
        shape = (2, work.sequences * each + 1, work.kv_heads, PAGE, work.dim)
        self.keys, self.values = torch.randn(shape, dtype=DTYPE, device=device)
        self.q = torch.randn(work.sequences * work.queries, work.heads, work.dim, dtype=DTYPE, device=device)
        self.out = torch.zeros_like(self.q)
        self.cu_q = torch.arange(work.sequences + 1, dtype=torch.int32, device=device) * work.queries
        self.kv_len = torch.full((work.sequences,), work.context, dtype=torch.int32, device=device)
        self.scratch = make_scratch(work.sequences, work.heads, work.dim, work.context, device)

    def ours(self, configs: AttentionConfigs | None = None) -> Tensor:
        """[sequences * queries, heads, dim]. configs: instead of the tables'."""
        return paged_attention(
            self.q,
            self.keys,
            self.values,
            self.tables,
            self.cu_q,
            self.kv_len,
            self.out,
            self.scratch,
            only_decodes=self.work.queries == 1,
            configs=configs,
        )

    @cached_property
    def dense(self) -> tuple[Tensor, Tensor]:
        """Keys and values without pages, [sequences, kv_heads, context, dim] each."""
        return self._gathered(self.keys), self._gathered(self.values)

    def _gathered(self, pages: Tensor) -> Tensor:
        work = self.work
        chosen = pages[self.tables.long()].transpose(1, 2)  # [sequences, kv_heads, pages, PAGE, dim]
        return chosen.reshape(work.sequences, work.kv_heads, -1, work.dim)[:, :, : work.context].contiguous()


def decodes(smoke: bool) -> list[AttentionWork]:
    sizes = ((1, 1024), (1, 16384), (8, 4096), (64, 512), (64, 4096), (256, 1024))
    return [AttentionWork(sequences, 1, context) for sequences, context in (sizes[:1] if smoke else sizes)]


def prompts(smoke: bool) -> list[AttentionWork]:
    sizes = ((1, 512, 512), (1, 2048, 2048), (1, 8192, 8192), (4, 2048, 2048), (1, 512, 8192))
    return [AttentionWork(*size) for size in (sizes[:1] if smoke else sizes)]
