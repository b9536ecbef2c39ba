"""transformers' attention calls: masks are proved before they are trusted, and what cannot be read is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from fairstep.errors import ModelError
from fairstep.kernels.paged_attention import AttentionKind
from fairstep.model.spec import LayerShape
from fairstep.model.transformers_attention import (
    NAME,
    AttentionLayer,
    PagedForward,
    Probe,
    mask_problem,
    register,
    under_way,
)

causal = masking_utils.causal_mask_function
no_padding = torch.zeros(1, dtype=torch.int64)


@pytest.mark.parametrize("context", [1, 50, 100_000])
def test_causal_masks_and_windows_are_what_pages_can_do(context: int) -> None:
    assert mask_problem(causal, 0, context) is None
    for window in (1, 7, 64, 4096):
        assert mask_problem(masking_utils.sliding_window_causal_mask_function(window), window, context) is None


def broken(*where: Any) -> Tensor:
    raise IndexError


@pytest.mark.parametrize(
    ("rule", "window"),
    [
        (masking_utils.bidirectional_mask_function, 0),
        (masking_utils.chunked_causal_mask_function(16, no_padding), 16),
        (masking_utils.sliding_window_causal_mask_function(16), 17),
        (masking_utils.sliding_window_causal_mask_function(4096), 0),
        (causal, 4096),
        (masking_utils.or_masks(causal, lambda batch, head, q, k: k < 4), 0),
        (masking_utils.and_masks(causal, lambda batch, head, q, k: (q - k) % 128 != 5), 0),
        (broken, 0),
    ],
)
def test_any_other_mask_is_a_problem(rule: Callable[..., Tensor], window: int) -> None:
    assert mask_problem(rule, window, 100_000)


def test_chunks_that_the_context_never_fills_are_plainly_causal() -> None:
    rule = masking_utils.chunked_causal_mask_function(512, no_padding)
    assert mask_problem(rule, 512, 512) is None
    assert mask_problem(rule, 512, 514)


class Caller(nn.Module):
    """An attention layer of transformers, as far as the interface sees it."""

    def attend(self, mask: object, tokens: int = 3, batch: int = 1, **options: Any) -> Tensor:
        q, k = torch.ones(batch, 4, tokens, 8), torch.ones(batch, 2, tokens, 8)
        out: Tensor = AttentionInterface()[NAME](self, q, k, torch.ones(batch, 2, tokens, 6), mask, **options)[0]
        return out


def mask_of(window: int | None) -> Tensor:
    rule = masking_utils.sliding_window_causal_mask_function(window) if window else causal
    token: Tensor = AttentionMaskInterface()[NAME](
        batch_size=1, q_length=3, kv_length=3, mask_function=rule, attention_mask=None, local_size=window
    )
    return token


@pytest.fixture(autouse=True)
def registered() -> None:
    register()


def test_a_call_is_read_with_its_window_scale_softcap_and_shapes() -> None:
    probe, caller = Probe(100), Caller()
    with under_way(probe):
        out = caller.attend(mask_of(None), scaling=0.5, dropout=0.0, position_ids=torch.arange(3), softcap=None)
        caller.attend(mask_of(5), sliding_window=5)
    assert out.shape == (1, 3, 4, 6)
    assert probe.layers == [AttentionLayer(caller, LayerShape(2, 8, 6))] * 2


class Backed:
    """A step's attention that remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, AttentionKind, Tensor | None]] = []

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, kind: AttentionKind, sinks: Tensor | None
    ) -> Tensor:
        assert (q.shape, k.shape, v.shape) == ((3, 4, 8), (3, 2, 8), (3, 2, 6))
        self.calls.append((layer, kind, sinks))
        return torch.zeros(3, 4, 6, dtype=q.dtype)


def test_calls_reach_the_backend_by_their_order() -> None:
    first, second, sinks = Caller(), Caller(), torch.zeros(4)
    layers = [AttentionLayer(caller, LayerShape(2, 8, 6)) for caller in (first, second, first)]
    backed = Backed()
    forward = PagedForward(layers, backed, torch.bfloat16)
    with under_way(forward):
        first.attend(mask_of(None), scaling=0.25)
        with pytest.raises(ModelError, match=r"1 attention layers of 3 were computed"):
            forward.check()
        second.attend(mask_of(7), softcap=2.0, s_aux=sinks)
        assert first.attend(mask_of(None)).dtype == torch.float32
        with pytest.raises(ModelError, match="out of turn"):
            first.attend(mask_of(None))
    forward.check()
    assert backed.calls == [
        (0, AttentionKind(scale=0.25), None),
        (1, AttentionKind(window=7, softcap=2.0), sinks),
        (2, AttentionKind(), None),
    ]


def test_a_layer_out_of_turn_is_an_error() -> None:
    forward = PagedForward([AttentionLayer(Caller(), LayerShape(2, 8, 6))], Backed(), torch.float32)
    with under_way(forward), pytest.raises(ModelError, match="out of turn"):
        Caller().attend(mask_of(None))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"position_bias": torch.zeros(1)}, "attends with position_bias"),
        ({"block_indices": 1, "indices": 2, "zeros": None}, "attends with block_indices, indices,"),
        ({"sliding_window": 9}, "told of a window of 9 and masked by one of None"),
        ({"batch": 2}, "something other than the tokens before"),
    ],
)
def test_what_cannot_be_computed_is_refused(options: dict[str, Any], reason: str) -> None:
    with under_way(Probe(100)), pytest.raises(ModelError, match=reason):
        Caller().attend(mask_of(None), **options)


def test_a_mask_of_the_models_own_is_refused() -> None:
    with under_way(Probe(100)):
        for mask in (None, torch.zeros(1, 1, 3, 3), mask_of(None) + 0, mask_of(None)[:, :, :, :3]):
            with pytest.raises(ModelError, match="a mask of its own, or none"):
                Caller().attend(mask)


def test_a_mask_that_pages_cannot_do_matters_only_where_it_is_used() -> None:
    with under_way(Probe(100)):
        AttentionMaskInterface()[NAME](mask_function=masking_utils.bidirectional_mask_function)
        Caller().attend(mask_of(None))
        with pytest.raises(ModelError, match="not causal"):
            Caller().attend(AttentionMaskInterface()[NAME](mask_function=masking_utils.bidirectional_mask_function))


def test_forward_passes_may_be_nested() -> None:
    outer, inner = Probe(100), Probe(100)
    with under_way(outer):
        with under_way(inner):
            Caller().attend(mask_of(None))
        assert not outer.layers
        Caller().attend(mask_of(None))
    assert len(outer.layers) == len(inner.layers) == 1
