"""How many pages a KV memory has, and that it keeps the null page zero."""

import pytest
import torch

from fairstep.errors import ConfigError
from fairstep.model.kv import KVMemory, page_bytes, pages_for
from fairstep.model.spec import ModelSpec

SPEC = ModelSpec(
    architecture="LlamaForCausalLM",
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=4,
    context=128,
    norm_eps=1e-5,
)


def memory() -> KVMemory:
    return KVMemory(SPEC, pages=5, page_size=8, dtype=torch.float32, device=torch.device("cpu"))


def test_pages_fill_the_memory_and_the_null_page_comes_on_top() -> None:
    kv = memory()
    size = page_bytes(SPEC, 8, torch.float32)
    assert kv.data.nbytes == 6 * size
    assert pages_for(SPEC, kv_memory=5 * size + size - 1, page_size=8, seats=5, dtype=torch.float32) == 5


@pytest.mark.parametrize("seats", [1, 4])
def test_too_little_memory_is_refused_with_the_amount_that_would_do(seats: int) -> None:
    size, needed = page_bytes(SPEC, 8, torch.float32), max(2, seats)
    with pytest.raises(ConfigError, match=f"set kv_memory to {needed * size} or more"):
        pages_for(SPEC, kv_memory=needed * size - 1, page_size=8, seats=seats, dtype=torch.float32)
    assert pages_for(SPEC, kv_memory=needed * size, page_size=8, seats=seats, dtype=torch.float32) == needed


def test_layers_are_views_of_the_one_memory() -> None:
    kv = memory()
    kv.layers[1][0][3] = 1.0
    kv.layers[2][1][4] = 2.0
    assert kv.data[1, 0, 3].min() == 1.0
    assert kv.data[2, 1, 4].min() == 2.0


def test_clearing_touches_the_named_pages_of_every_layer_and_no_other() -> None:
    kv = memory()
    kv.data.fill_(float("nan"))
    kv.clear(torch.tensor([2, 4]))
    assert not kv.data[:, :, [2, 4]].any()
    assert kv.data[:, :, [0, 1, 3, 5]].isnan().all()


def test_a_written_null_page_is_found() -> None:
    kv = memory()
    kv.check()
    kv.layers[0][0][0, 0, 0, 0] = 1.0
    with pytest.raises(AssertionError, match="null page"):
        kv.check()
    kv.clear_null_page()
    kv.check()
