"""transformers' attention interface led into a forward pass of ours: its attention calls and masks, read and checked.

Masks are never built: a token stands for each, after its rule was proved to be causal with at most a window. What
cannot be read is refused in words. Follows AttentionInterface and AttentionMaskInterface of transformers 5.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from ..errors import ModelError
from ..kernels.paged_attention import AttentionKind
from .backend import Attention
from .spec import LayerShape

NAME = "fairstep"  # as attn_implementation
READ = {"scaling", "softcap", "sliding_window", "s_aux"}
# what changes nothing without a cache, outside training, once the mask is known
HARMLESS = {"dropout", "is_causal", "position_ids", "use_cache", "output_attentions"}
MaskRule = Callable[[int, int, Tensor, Tensor], Tensor]  # batch, head, query and key positions -> may it see it


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """One attention call of a forward pass: who makes it, and what it keeps of a token."""

    module: nn.Module
    shape: LayerShape


@dataclass(frozen=True, slots=True)
class Call:
    """One attention call. q [T, heads, Dk], k [T, kv_heads, Dk], v [T, kv_heads, Dv]; sinks [heads] or None."""

    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    kind: AttentionKind
    sinks: Tensor | None


class Forward(Protocol):
    """Where the attention calls of a forward pass under way arrive."""

    def mask(self, rule: MaskRule, window: int) -> Tensor:
        """A token that stands for a mask; window 0 sees everything before."""
        ...

    def attend(self, call: Call) -> Tensor:
        """[T, heads, Dv]"""
        ...

    def window_of(self, token: object) -> int | None:
        """The window of a mask made by `mask`; None for anything else."""
        ...


_under_way: ContextVar[Forward] = ContextVar("the forward pass under way")


@contextmanager
def under_way(forward: Forward) -> Iterator[None]:
    """Attention calls of models in this thread arrive at `forward`."""
    before = _under_way.set(forward)
    try:
        yield
    finally:
        _under_way.reset(before)


def register() -> None:
    """Make NAME an attention implementation of transformers. May be called again."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)


class MaskTokens:
    """Tensors that stand for masks, told apart by identity: a model that calculates with one is found out."""

    def __init__(self) -> None:
        self._tokens: list[tuple[Tensor, int]] = []

    def add(self, window: int) -> Tensor:
        token = torch.zeros(1, 1, 1, 1)
        self._tokens.append((token, window))
        return token

    def window_of(self, token: object) -> int | None:
        return next((window for known, window in self._tokens if known is token), None)


class Probe:
    """A forward pass in which each token sees itself alone: proves the masks that are used, lists the attention calls.

    context: masks are proved up to there; 0: they are not, as for positions out of order. Raises ModelError.
    """

    def __init__(self, context: int) -> None:
        self.layers: list[AttentionLayer] = []
        self._context = context
        self._masks: list[tuple[Tensor, int, str | None]] = []

    def mask(self, rule: MaskRule, window: int) -> Tensor:
        token = torch.zeros(1, 1, 1, 1)
        problem = mask_problem(rule, window, self._context) if self._context else None
        self._masks.append((token, window, problem))
        return token

    def window_of(self, token: object) -> int | None:
        for known, window, problem in self._masks:
            if known is token and problem:
                raise ModelError(problem)
            if known is token:
                return window
        return None

    def attend(self, call: Call) -> Tensor:
        shape = LayerShape(call.k.shape[1], call.k.shape[2], call.v.shape[2])
        self.layers.append(AttentionLayer(call.module, shape))
        return call.v.repeat_interleave(call.q.shape[1] // shape.kv_heads, dim=1).to(call.q.dtype)


class PagedForward:
    """A forward pass over pages: its n-th attention call belongs to layers[n]."""

    def __init__(self, layers: Sequence[AttentionLayer], attention: Attention, dtype: torch.dtype) -> None:
        self._layers = layers
        self._attention = attention
        self._dtype = dtype  # of keys and values in pages
        self._calls = 0
        self._masks = MaskTokens()

    def mask(self, rule: MaskRule, window: int) -> Tensor:
        return self._masks.add(window)

    def window_of(self, token: object) -> int | None:
        return self._masks.window_of(token)

    def attend(self, call: Call) -> Tensor:
        layer = self._calls
        if layer >= len(self._layers) or self._layers[layer].module is not call.module:
            raise ModelError(f"{_name(call.module)} attends out of turn: its layers differ from step to step")
        self._calls += 1
        q, k, v = (part.to(self._dtype) for part in (call.q, call.k, call.v))
        return self._attention(layer, q, k, v, call.kind, sinks=call.sinks).to(call.q.dtype)

    def check(self) -> None:
        """Every layer was computed."""
        if self._calls != len(self._layers):
            raise ModelError(f"{self._calls} attention layers of {len(self._layers)} were computed")


def mask_problem(rule: MaskRule, window: int, context: int) -> str | None:
    """Why a mask is not this: position q sees exactly the positions above q - window (0: all) up to q itself."""
    edges = [n * window + near for n in (1, 2, 3) for near in range(-2, 3)] if window else []
    spread = torch.linspace(0, context - 1, 100).long().tolist()
    places = torch.tensor(sorted({p for p in (*range(64), *edges, *spread) if 0 <= p < context}))
    q, k = places[:, None], places[None, :]
    wanted = (k <= q) & (k > q - window) if window else k <= q
    try:
        found = torch.as_tensor(rule(0, 0, q, k)).expand(wanted.shape)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return "its attention has a mask of its own kind, which cannot be computed over pages"
    if torch.equal(found, wanted):
        return None
    return "its attention is not causal, or its mask is more than a sliding window"


def _mask(
    *, mask_function: MaskRule, local_size: int | None = None, attention_mask: Tensor | None = None, **shapes: object
) -> Tensor:
    """Called by transformers where it would build a mask."""
    return _under_way.get().mask(mask_function, local_size or 0)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Called by transformers: query [1, heads, T, Dk], key, value [1, kv_heads, T, D] -> [1, T, heads, Dv]."""
    forward = _under_way.get()
    _refuse_unknown(module, query, key, options)
    window = forward.window_of(attention_mask)
    if window is None:
        raise ModelError(f"{_name(module)} makes a mask of its own, or none: it cannot be computed over pages")
    said = options.get("sliding_window", window)
    if (said or 0) != window:
        raise ModelError(f"{_name(module)} is told of a window of {said} and masked by one of {window or None}")
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    kind = AttentionKind(window=window, scale=options.get("scaling"), softcap=options.get("softcap") or 0.0)
    return forward.attend(Call(module, q, k, v, kind, options.get("s_aux")))[None], None


def _refuse_unknown(module: nn.Module, query: Tensor, key: Tensor, options: Mapping[str, Any]) -> None:
    unknown = sorted(name for name, value in options.items() if value is not None and name not in READ | HARMLESS)
    if unknown:
        raise ModelError(f"{_name(module)} attends with {', '.join(unknown)}, which cannot be computed over pages")
    if query.shape[0] != 1 or key.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise ModelError(f"{_name(module)} attends to something other than the tokens before")


def _name(module: nn.Module) -> str:
    return type(module).__name__
