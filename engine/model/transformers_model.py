"""Any decoder-only model of transformers over our pages: its own code, one packed row a step, no cache of its own.

Slower than our decoder, and right: its attention goes through the backend, everything else is the library's.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from ..errors import ModelError
from .backend import Backend
from .batch import StepBatch
from .transformers_attention import AttentionLayer, PagedForward, Probe, under_way


class TransformersModel:
    """A CausalModel. `layers` are those that `each_alone` found in `model`; dtype: of the backend's pages."""

    def __init__(
        self, model: PreTrainedModel, layers: Sequence[AttentionLayer], backend: Backend, dtype: torch.dtype
    ) -> None:
        self.layers = tuple(layers)
        self.backend = backend
        self.device: torch.device = model.device
        self.dtype = dtype  # the model may keep some parts wider
        self._decoder = decoder_of(model)
        self._head = _head_alone(model, self._decoder)

    @torch.inference_mode()
    def hidden(self, batch: StepBatch) -> Tensor:
        """The decoder's last hidden states [T, hidden], final norm included; keeps keys and values."""
        forward = PagedForward(self.layers, self.backend.begin(batch), self.dtype)
        with under_way(forward):
            out = _states(self._decoder, batch.ids, batch.positions)
        forward.check()
        return out

    @torch.inference_mode()
    def logits(self, rows: Tensor) -> Tensor:
        """[R, hidden] -> [R, vocab] float32, by the model's own head: scales and softcaps included."""
        logits: Tensor = self._head(inputs_embeds=rows[None], use_cache=False).logits
        return logits[0].to(torch.float32)

    def forward(self, batch: StepBatch) -> Tensor:
        """Compute a step. Returns logits [R, vocab] float32 of batch.logit_rows."""
        return self.logits(self.hidden(batch).index_select(0, batch.logit_rows))


@torch.inference_mode()
def each_alone(
    model: PreTrainedModel, ids: Tensor, positions: Tensor, *, context: int
) -> tuple[Tensor, tuple[AttentionLayer, ...]]:
    """A pass in which each token sees itself alone: last hidden states [T, hidden], and the attention calls made.

    context: masks are proved up to there; 0: not at all. Raises ModelError where those calls do not fit pages.
    """
    probe = Probe(context)
    with under_way(probe):
        states = _states(decoder_of(model), ids.to(model.device), positions.to(model.device))
    if not probe.layers:
        raise ModelError("no layer goes through transformers' attention interface")
    return states, tuple(probe.layers)


def decoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """The part below the head. Raises ModelError."""
    decoder = model.get_decoder()
    if isinstance(decoder, PreTrainedModel) and decoder is not model:
        return decoder
    parts = [part for part in model.children() if isinstance(part, PreTrainedModel)]
    if len(parts) != 1:
        raise ModelError("its head cannot be told from its decoder")
    return parts[0]


def _states(decoder: nn.Module, ids: Tensor, positions: Tensor) -> Tensor:
    """Last hidden states [T, hidden] of one packed row."""
    states: Tensor = decoder(input_ids=ids[None], position_ids=positions[None], use_cache=False)[0]
    return states[0]


class _States(BaseModelOutputWithPast):
    """A decoder's output that has last hidden states; whatever else heads look for is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _PassThrough(nn.Module):
    """Stands where a decoder stood and gives back what it is handed as embeddings."""

    def forward(self, *args: Any, inputs_embeds: Tensor, **options: Any) -> _States:
        return _States(last_hidden_state=inputs_embeds)


def _head_alone(model: PreTrainedModel, decoder: nn.Module) -> nn.Module:
    """The model without its decoder: modules on the way there are copied, all others shared."""
    path = next(name for name, module in model.named_modules() if module is decoder)
    return _with(model, path.split("."), _PassThrough())


def _with(module: nn.Module, path: Sequence[str], stand_in: nn.Module) -> nn.Module:
    """A shallow copy of `module` with `stand_in` at `path` below it."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    name, *rest = path
    setattr(twin, name, _with(getattr(module, name), rest, stand_in) if rest else stand_in)
    return twin
