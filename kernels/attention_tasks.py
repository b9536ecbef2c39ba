"""What the attention of all layers of a step does alike: which pages each sequence reads and what each query sees.

Made once a step for each LayerView. How a sequence is computed depends on its own length, never on its batch.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where one sequence's queries lie: rows [q_start, q_start + q_len) are its last q_len of kv_len positions."""

    q_start: int
    q_len: int
    kv_len: int


@dataclass(frozen=True, slots=True)
class LayerView:
    """What a layer's tasks depend on besides the step: layers of one view share them.

    window: how many positions a query sees, itself included; 0 all. dtype: of the masks. always_masks: also where a
    causal prompt could do without.
    """

    page_size: int
    kv_heads: int
    dtype: torch.dtype
    window: int = 0
    always_masks: bool = False


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences with one query each whose page tables are padded to the same length N."""

    rows: Tensor  # [B] rows of q
    gather: Tensor  # [B * kv_heads * N] rows of the (page, head) view
    mask: Tensor  # [B, 1, 1, N * page_size], 0 or -inf


@dataclass(frozen=True, slots=True)
class PromptTask:
    """One sequence with several queries, over its last `keys` positions."""

    rows: slice  # of q
    keys: int
    gather: Tensor  # [kv_heads * N]
    mask: Tensor | None  # [q_len, keys], 0 or -inf; None: plain causal, every key a query of this step


@dataclass(frozen=True, slots=True)
class AttentionTasks:
    """A step's sequences, sorted by how they are computed."""

    decodes: tuple[DecodeGroup, ...]
    prompts: tuple[PromptTask, ...]


def padded_pages(pages: int) -> int:
    """The page count a decode of `pages` is padded to: at most a quarter more, four sizes an octave."""
    step = 1 << max(0, pages.bit_length() - 3)
    return -(-pages // step) * step


def prepare(bounds: Sequence[Bounds], page_tables: Tensor, view: LayerView) -> AttentionTasks:
    """Sort a step's sequences into tasks.

    page_tables: [S, N] int64, row s for bounds[s]; entries past a sequence's pages are never read.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    prompts = []
    for index, item in enumerate(bounds):
        if item.q_len == 1:
            by_size[_decode_pages(item.kv_len, view)].append(index)
        else:
            prompts.append(_prompt_task(item, page_tables[index], view))
    groups = (
        _decode_group([bounds[i] for i in members], page_tables[members], size, view)
        for size, members in by_size.items()
    )
    return AttentionTasks(tuple(groups), tuple(prompts))


def _decode_pages(kv_len: int, view: LayerView) -> int:
    """How many pages a decode reads, padding included: past its window the most that the window can touch."""
    if view.window and kv_len > view.window:
        return (view.window + view.page_size - 2) // view.page_size + 1
    return padded_pages(-(-kv_len // view.page_size))


def _decode_group(members: Sequence[Bounds], page_tables: Tensor, size: int, view: LayerView) -> DecodeGroup:
    """page_tables: [B, N] of the members. size: how many pages each reads."""
    device, page_size = page_tables.device, view.page_size
    ends = torch.tensor([item.kv_len for item in members], device=device)[:, None]
    starts = (ends - view.window).clamp_(min=0) if view.window else torch.zeros_like(ends)  # the first position seen
    places = starts // page_size + torch.arange(size, device=device)  # [B, size] in the page tables
    used = places * page_size < ends
    tables = page_tables.gather(1, places.clamp_(max=page_tables.shape[1] - 1)) * used  # unused: the null page
    positions = starts - starts % page_size + torch.arange(size * page_size, device=device)
    seen = (positions >= starts) & (positions < ends)  # [B, size * page_size]
    return DecodeGroup(
        rows=torch.tensor([item.q_start for item in members], device=device),
        gather=_gather_rows(tables, view.kv_heads),
        mask=_additive(seen, view.dtype)[:, None, None, :],
    )


def _prompt_task(item: Bounds, page_table: Tensor, view: LayerView) -> PromptTask:
    """page_table: [N]."""
    first = item.kv_len - item.q_len  # the first query's position
    window = view.window if view.window < item.kv_len else 0
    first_page = max(0, first - window + 1) // view.page_size if window else 0
    start = first_page * view.page_size
    pages = page_table[None, first_page : -(-item.kv_len // view.page_size)]
    mask = None
    if first or window or view.always_masks:
        mask = _additive(_seen_by_prompt(first, start, item.kv_len, window, page_table.device), view.dtype)
    return PromptTask(
        rows=slice(item.q_start, item.q_start + item.q_len),
        keys=item.kv_len - start,
        gather=_gather_rows(pages, view.kv_heads),
        mask=mask,
    )


def _seen_by_prompt(first: int, start: int, end: int, window: int, device: torch.device) -> Tensor:
    """Which keys at [start, end) the queries at [first, end) see: [end - first, end - start] bool."""
    queries = torch.arange(first, end, device=device)[:, None]
    keys = torch.arange(start, end, device=device)
    seen = keys <= queries
    return seen & (keys > queries - window) if window else seen


def _gather_rows(tables: Tensor, kv_heads: int) -> Tensor:
    """Page tables [B, N] -> rows of the (page, head) view in the order (sequence, head, page)."""
    heads = torch.arange(kv_heads, device=tables.device)
    return (tables[:, None, :] * kv_heads + heads[None, :, None]).reshape(-1)


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
