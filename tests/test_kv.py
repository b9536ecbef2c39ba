"""How many pages a KV memory has, whatever its layers' shapes, and that it keeps the null page zero."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fairstep.errors import ConfigError
from fairstep.model.kv import KVMemory, page_bytes, pages_for
from fairstep.model.spec import LayerShape

ALIKE = (LayerShape(2, 4, 4),) * 3
UNEVEN = (LayerShape(2, 4, 4), LayerShape(1, 8, 8), LayerShape(3, 6, 5))
WIDER_KEYS = (LayerShape(2, 6, 4),) * 3
ALL = pytest.mark.parametrize("shapes", [ALIKE, UNEVEN, WIDER_KEYS], ids=["alike", "uneven", "wider_keys"])


def memory(shapes: Sequence[LayerShape]) -> KVMemory:
    return KVMemory(shapes, pages=5, page_size=8, dtype=torch.float32, device=torch.device("cpu"))


def parts(kv: KVMemory) -> list[Tensor]:
    return [part for layer in kv.layers for part in layer]


@ALL
def test_pages_fill_the_memory_and_the_null_page_comes_on_top(shapes: Sequence[LayerShape]) -> None:
    size = page_bytes(shapes, 8, torch.float32)
    assert sum(block.nbytes for block in memory(shapes).blocks) == 6 * size
    assert pages_for(shapes, kv_memory=5 * size + size - 1, page_size=8, seats=5, dtype=torch.float32) == 5


@pytest.mark.parametrize("seats", [1, 4])
def test_too_little_memory_is_refused_with_the_amount_that_would_do(seats: int) -> None:
    size, needed = page_bytes(UNEVEN, 8, torch.float32), max(2, seats)
    with pytest.raises(ConfigError, match=f"set kv_memory to {needed * size} or more"):
        pages_for(UNEVEN, kv_memory=needed * size - 1, page_size=8, seats=seats, dtype=torch.float32)
    assert pages_for(UNEVEN, kv_memory=needed * size, page_size=8, seats=seats, dtype=torch.float32) == needed


@ALL
def test_each_layer_has_its_own_zeroed_keys_and_values_of_its_shape(shapes: Sequence[LayerShape]) -> None:
    kv = memory(shapes)
    for shape, (keys, values) in zip(shapes, kv.layers, strict=True):
        assert keys.shape == (6, shape.kv_heads, 8, shape.key_dim)
        assert values.shape == (6, shape.kv_heads, 8, shape.value_dim)
    for mark, part in enumerate(parts(kv)):
        assert not part.any()
        part.fill_(mark + 1)
    assert [part.unique().tolist() for part in parts(kv)] == [[mark + 1] for mark in range(2 * len(shapes))]


def test_layers_of_one_shape_are_one_block() -> None:
    assert [len(memory(shapes).blocks) for shapes in (ALIKE, UNEVEN, WIDER_KEYS)] == [1, 6, 6]


@ALL
def test_clearing_touches_the_named_pages_of_every_layer_and_no_other(shapes: Sequence[LayerShape]) -> None:
    kv = memory(shapes)
    for part in parts(kv):
        part.fill_(torch.nan)
    kv.clear(torch.tensor([2, 4]))
    for part in parts(kv):
        assert not part[[2, 4]].any()
        assert part[[0, 1, 3, 5]].isnan().all()


@ALL
def test_a_written_null_page_is_found_wherever_it_was_written(shapes: Sequence[LayerShape]) -> None:
    kv = memory(shapes)
    kv.check()
    for part in parts(kv):
        part[0, 0, 0, 0] = 1.0
        with pytest.raises(AssertionError, match="null page"):
            kv.check()
        kv.clear_null_page()
        kv.check()
