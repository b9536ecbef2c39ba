"""Memory that is lent to a device: what a launch finds there, and what it leaves."""

import torch

from on_device import Lent

DEVICE = torch.device("cpu")  # a copy all the same


def test_views_find_what_lay_around_them() -> None:
    store = torch.arange(24.0).view(4, 6)
    view = store[1:3, 2:5]
    lent = Lent(DEVICE)
    there = lent.lend(view)
    assert torch.equal(there, view) and there.stride() == view.stride()
    assert there.data_ptr() != view.data_ptr()
    assert there.as_strided((4, 6), (6, 1), 0).equal(store)


def test_what_is_written_there_comes_back_and_nothing_else_changes() -> None:
    store = torch.full((4, 4), float("nan"))
    store[0] = 1
    lent = Lent(DEVICE)
    there = lent.lend(store[1:2])
    there.fill_(7)
    assert store[1].isnan().all()
    lent.give_back()
    assert store[1].eq(7).all() and store[0].eq(1).all() and store[2:].isnan().all()


def test_tensors_that_share_memory_share_it_there() -> None:
    keys, values = torch.zeros(2, 3)
    lent = Lent(DEVICE)
    lent.lend(keys).fill_(1)
    assert lent.lend(keys.view(torch.int32)).eq(0x3F800000).all()
    lent.lend(values).fill_(2)
    lent.give_back()
    assert keys.eq(1).all() and values.eq(2).all()


def test_other_arguments_stay_as_they_are() -> None:
    lent = Lent(DEVICE)
    meta = torch.empty(2, device="meta")
    assert [lent.lend(value) for value in (None, 3, (1, 2))] == [None, 3, (1, 2)]
    assert lent.lend(meta) is meta


def test_an_empty_tensor_is_lent_too() -> None:
    assert Lent(DEVICE).lend(torch.empty(0, 3)).shape == (0, 3)
