"""A step's attention over KVMemory: layers of any shape and kind, prompts in any chunks, beside any neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairstep.door import Sampling
from fairstep.kernels.attention_tasks import AttentionTasks, Bounds, LayerView, prepare
from fairstep.kernels.paged_attention import PLAIN, AttentionKind
from fairstep.model.backend import TorchBackend
from fairstep.model.batch import StepBatch
from fairstep.model.kv import KVMemory
from fairstep.model.spec import LayerShape
from fairstep.stepping.plan import Slice
from naive_attention import naive_attention

CPU = torch.device("cpu")
PAGE = 4


@dataclass(frozen=True)
class LayerCase:
    """One layer, with `group` query heads a kv head."""

    shape: LayerShape
    kind: AttentionKind = PLAIN
    group: int = 2
    sinks: Tensor | None = None

    @property
    def heads(self) -> int:
        return self.shape.kv_heads * self.group


LAYERS = (
    LayerCase(LayerShape(2, 8, 8)),
    LayerCase(LayerShape(2, 8, 8), AttentionKind(window=6)),
    LayerCase(LayerShape(1, 8, 12), AttentionKind(window=6, scale=0.2), group=3),
    LayerCase(LayerShape(3, 12, 8), AttentionKind(softcap=1.0), group=1),
    LayerCase(LayerShape(2, 8, 8), AttentionKind(window=9), sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])),
    LayerCase(LayerShape(2, 8, 8), AttentionKind(window=1000, softcap=1.0)),
)


@dataclass
class Text:
    """A sequence whose queries, keys and values are known beforehand, [layer][length, heads, D]."""

    seq: int
    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]
    pages: tuple[int, ...]
    computed: int = 0
    out: list[list[Tensor]] = field(default_factory=lambda: [[] for _ in LAYERS])

    @classmethod
    def of(cls, seq: int, length: int) -> "Text":
        random = torch.Generator().manual_seed(seq)

        def normal(heads: int, dim: int) -> Tensor:
            return torch.randn(length, heads, dim, generator=random)

        return cls(
            seq=seq,
            q=[normal(layer.heads, layer.shape.key_dim) for layer in LAYERS],
            k=[normal(layer.shape.kv_heads, layer.shape.key_dim) for layer in LAYERS],
            v=[normal(layer.shape.kv_heads, layer.shape.value_dim) for layer in LAYERS],
            pages=tuple(range(1 + seq * 12, 13 + seq * 12)),
        )

    def next_slice(self, most: int) -> Slice:
        count = min(most, len(self.q[0]) - self.computed)
        return Slice(self.seq, 1, self.computed, (0,) * count, self.pages, False, 0, Sampling(), False)


def backend(fill: float = 0.0) -> TorchBackend:
    """Every page but the null page holds `fill`."""
    kv = KVMemory([layer.shape for layer in LAYERS], pages=60, page_size=PAGE, dtype=torch.float32, device=CPU)
    for block in kv.blocks:
        block[:, 1:] = fill
    return TorchBackend(kv)


def step(backend: TorchBackend, texts: Sequence[Text], sizes: Sequence[int]) -> None:
    """One step that gives each text up to so many tokens; what comes out is kept with the text."""
    slices = [text.next_slice(size) for text, size in zip(texts, sizes, strict=True)]
    batch = StepBatch(slices, PAGE, CPU)
    attention = backend.begin(batch)
    for index, layer in enumerate(LAYERS):
        q, k, v = (
            torch.cat([parts(text)[index][part.start : part.end] for text, part in zip(texts, slices, strict=True)])
            for parts in (lambda text: text.q, lambda text: text.k, lambda text: text.v)
        )
        out = attention(index, q, k, v, layer.kind, layer.sinks)
        for text, bounds in zip(texts, batch.bounds, strict=True):
            text.out[index].append(out[bounds.q_start : bounds.q_start + bounds.q_len])
    for text, part in zip(texts, slices, strict=True):
        text.computed = part.end


def assert_dense(text: Text) -> None:
    """What came out, step by step, is what one dense pass over the text gives."""
    for index, layer in enumerate(LAYERS):
        want = naive_attention(text.q[index], text.k[index], text.v[index], layer.kind, layer.sinks)
        torch.testing.assert_close(torch.cat(text.out[index]).double(), want, atol=3e-6, rtol=3e-6)


@settings(max_examples=25)
@given(st.data())
def test_any_chunks_beside_any_neighbours_equal_one_dense_pass(data: st.DataObject) -> None:
    texts = [Text.of(seq, data.draw(st.integers(1, 30))) for seq in range(data.draw(st.integers(1, 4)))]
    torch_backend = backend(fill=torch.nan)
    while waiting := [text for text in texts if text.computed < len(text.q[0])]:
        chosen = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique_by=lambda text: text.seq))
        step(torch_backend, chosen, [data.draw(st.sampled_from([1, 1, 2, 5, 8, 30])) for _ in chosen])
    for text in texts:
        assert_dense(text)
    torch_backend.kv.check()


def test_decodes_are_equal_to_the_last_bit_alone_and_beside_others() -> None:
    lengths = [1, 6, 7, 9, 30]

    def decoded(groups: list[list[int]]) -> list[Text]:
        texts = [Text.of(seq, length) for seq, length in enumerate(lengths)]
        torch_backend = backend()
        for text in texts:
            if len(text.q[0]) > 1:
                step(torch_backend, [text], [len(text.q[0]) - 1])
        for group in groups:
            step(torch_backend, [texts[seq] for seq in group], [1] * len(group))
        return texts

    together, alone = decoded([[0, 1, 2, 3, 4]]), decoded([[0], [1], [2], [3], [4]])
    for one, other in zip(together, alone, strict=True):
        for index in range(len(LAYERS)):
            assert torch.equal(one.out[index][-1], other.out[index][-1])


def test_tasks_are_made_once_for_all_layers_that_see_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int] = []

    def counted(bounds: Sequence[Bounds], page_tables: Tensor, view: LayerView) -> AttentionTasks:
        windows.append(view.window)
        return prepare(bounds, page_tables, view)

    monkeypatch.setattr("fairstep.model.backend.prepare", counted)
    kv = KVMemory([LayerShape(2, 8, 8)] * 6, pages=10, page_size=PAGE, dtype=torch.float32, device=CPU)
    batch = StepBatch([Slice(0, 1, 0, (0,) * 12, (1, 2, 3), False, 0, Sampling(), False)], PAGE, CPU)
    attention = TorchBackend(kv).begin(batch)
    assert windows == []
    q, k = torch.zeros(12, 4, 8), torch.zeros(12, 2, 8)
    for layer, window in enumerate([0, 5, 0, 5, 12, 100]):  # a window of 12 or more reaches all there is
        attention(layer, q, k, k, AttentionKind(window=window, scale=0.1 * (layer + 1)))
    assert windows == [0, 5]


@pytest.mark.parametrize("kind", [PLAIN, AttentionKind(window=3)])
def test_a_page_begun_again_shows_nothing_of_what_it_held(kind: AttentionKind) -> None:
    kv = KVMemory([LayerShape(1, 8, 8)], pages=2, page_size=PAGE, dtype=torch.float32, device=CPU)
    kv.layers[0][0][1:] = torch.nan
    kv.layers[0][1][1:] = torch.inf
    batch = StepBatch([Slice(0, 1, 0, (0,), (2,), False, 0, Sampling(), True)], PAGE, CPU)
    v = torch.ones(1, 1, 8)
    out = TorchBackend(kv).begin(batch)(0, v, v, v, kind)
    torch.testing.assert_close(out, v)
