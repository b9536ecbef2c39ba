"""Proof at load that a model over pages is the model: a few tokens in chunks and packed, against its plain forward.

Finds what no config tells: states beside keys and values, neighbours in a row that leak, heads that need more than
hidden states.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..door import Sampling
from ..errors import ModelError
from ..stepping.plan import Slice
from .backend import TorchBackend
from .batch import StepBatch
from .fields import one_line
from .kv import KVMemory
from .transformers_attention import NAME, AttentionLayer
from .transformers_config import TransformersSpec
from .transformers_model import TransformersModel, each_alone

PAGE = 8
FIRST, SECOND = 21, 10  # tokens of two sequences
PAGES = ((3, 1, 4), (5, 2))
# (sequence, from, to) of each slice, step by step: chunks, a new neighbour beside a chunk, and decodes
STEPS = (((0, 0, 7),), ((0, 7, 20), (1, 0, 9)), ((0, 20, 21), (1, 9, 10)))
# most that the median row of hidden states may be off when a row's tokens change places
ALONE = 0.02
# a part of the rows, and the most that these may be off, as a part of their logits' spread: where rounding is coarse, a
# router of experts may choose another one in a few rows
TOLERANCE = {torch.float32: (1.0, 1e-3), torch.float16: (0.75, 0.05), torch.bfloat16: (0.75, 0.15)}


def proved_layers(model: PreTrainedModel, spec: TransformersSpec, dtype: torch.dtype) -> tuple[AttentionLayer, ...]:
    """The attention calls of a forward pass, after a proof that they give the model's logits with pages of `dtype`.

    Raises ModelError.
    """
    try:
        layers = independent_layers(model, spec)
        check_model(model, layers, spec.vocab_size, dtype)
    except ModelError as error:
        raise ModelError(f"{spec.architecture} cannot be served: {error}") from error
    except Exception as error:  # whatever a model's own code raises
        reason = one_line(f"{type(error).__name__}: {error}")
        raise ModelError(f"{spec.architecture} cannot be run on sequences packed in one row: {reason}") from error
    return layers


def independent_layers(model: PreTrainedModel, spec: TransformersSpec) -> tuple[AttentionLayer, ...]:
    """The attention calls of a forward pass. Raises ModelError where tokens see one another in any other way: with each
    token seeing itself alone, the order of a row must not matter."""
    ids, _ = _sequences(spec.vocab_size, getattr(model.config, "pad_token_id", None))
    positions = torch.arange(len(ids))
    states, layers = each_alone(model, ids, positions, context=spec.context)
    turned, _ = each_alone(model, ids.flip(0), positions.flip(0), context=0)
    if not _off(turned.flip(0).float(), states.float()).median() <= ALONE:
        raise ModelError("it has layers that keep state other than keys and values")
    return layers


@torch.inference_mode()
def check_model(
    model: PreTrainedModel, layers: tuple[AttentionLayer, ...], vocab_size: int, dtype: torch.dtype
) -> None:
    """Raises ModelError when logits over pages differ from the model's own."""
    sequences = _sequences(vocab_size, getattr(model.config, "pad_token_id", None))
    for mine, plain in zip(_paged(model, layers, sequences, dtype), _plain(model, sequences), strict=True):
        if mine.shape != plain.shape or plain.shape[1] != vocab_size:
            raise ModelError(f"its logits have shape {list(plain.shape)} for a vocabulary of {vocab_size}")
        _compare(mine, plain, dtype)


def _sequences(vocab_size: int, padding: int | None) -> list[Tensor]:
    """Random ids [T], none of them padding: some models number positions by what is none."""
    random = torch.Generator().manual_seed(0)
    sequences = [torch.randint(0, vocab_size, (length,), generator=random) for length in (FIRST, SECOND)]
    return [ids.where(ids != (-1 if padding is None else padding), (ids + 1) % vocab_size) for ids in sequences]


def _compare(mine: Tensor, plain: Tensor, dtype: torch.dtype) -> None:
    """Rows [T, vocab] of logits."""
    part, most = TOLERANCE[dtype]
    off = _off(mine, plain).quantile(part)
    if not off <= most:  # also when it is no number
        raise ModelError(
            f"computed in pieces over pages it differs from its plain forward pass by {off:.1e} of its logits' spread: "
            "its attention has a feature that is not built"
        )


def _off(found: Tensor, wanted: Tensor) -> Tensor:
    """How far each row [T, n] is off, as a part of its spread: [T]."""
    spread = torch.linalg.vector_norm(wanted - wanted.mean(1, keepdim=True), dim=1)
    off: Tensor = torch.linalg.vector_norm(found - wanted, dim=1) / spread
    return off


def _paged(
    model: PreTrainedModel, layers: tuple[AttentionLayer, ...], sequences: list[Tensor], dtype: torch.dtype
) -> list[Tensor]:
    """Logits [T, vocab] of each sequence, over pages."""
    shapes = [layer.shape for layer in layers]
    kv = KVMemory(shapes, pages=5, page_size=PAGE, dtype=dtype, device=model.device)
    over_pages = TransformersModel(model, layers, TorchBackend(kv), dtype)
    found: list[list[Tensor]] = [[] for _ in sequences]
    for step in STEPS:
        slices = [_slice(owner, sequences[owner], start, end) for owner, start, end in step]
        logits = over_pages.logits(over_pages.hidden(StepBatch(slices, PAGE, model.device)))
        parts = logits.split([end - start for _, start, end in step])
        for (owner, _, _), part in zip(step, parts, strict=True):
            found[owner].append(part)
    return [torch.cat(parts) for parts in found]


def _slice(owner: int, ids: Tensor, start: int, end: int) -> Slice:
    tokens = tuple(ids[start:end].tolist())
    return Slice(owner, 1, start, tokens, PAGES[owner], False, 0, Sampling(), False)


def _plain(model: PreTrainedModel, sequences: list[Tensor]) -> list[Tensor]:
    """Logits [T, vocab] of each sequence, by the model alone with its own attention."""
    model.set_attn_implementation("eager")
    try:
        return [
            model(input_ids=ids[None].to(model.device), use_cache=False).logits[0].to(torch.float32)
            for ids in sequences
        ]
    finally:
        model.set_attn_implementation(NAME)
