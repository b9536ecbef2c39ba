"""What a step's layers share: which pages are read, padded how, and what a mask lets through."""

import pytest
import torch

from fairstep.kernels.attention_tasks import Bounds, LayerView, padded_pages, prepare

PAGE = 8


def table(*pages: int) -> torch.Tensor:
    return torch.tensor([pages])


def test_a_padded_page_table_is_at_most_a_quarter_longer() -> None:
    for pages in range(1, 3000):
        assert pages <= padded_pages(pages) <= pages * 1.25


def test_padding_is_the_null_page_whatever_the_table_holds_past_the_end() -> None:
    pages = list(range(1, 10))  # 9 are padded to 10
    tables = torch.tensor([[*pages, 63, 63], [20, *[63] * 10]])
    tasks = prepare([Bounds(0, 1, 9 * PAGE), Bounds(1, 1, 5)], tables, LayerView(PAGE, 2, torch.float32))
    gathered = tasks.decodes[0].gather.view(1, 2, -1)
    assert (gathered[0, 0] // 2).tolist() == [*pages, 0]
    assert (gathered[0, 1] % 2).tolist() == [1] * 9 + [1]


@pytest.mark.parametrize(
    ("kv_len", "window", "pages"),
    [
        (40, 0, [1, 2, 3, 4, 5]),
        (40, 40, [1, 2, 3, 4, 5]),
        (40, 41, [1, 2, 3, 4, 5]),
        (40, 16, [4, 5, 0]),  # exactly two pages; a window of 16 may touch three
        (41, 16, [4, 5, 6]),
        (39, 16, [3, 4, 5]),
        (41, 1, [6]),
        (41, 2, [5, 6]),
    ],
)
def test_a_decode_reads_the_pages_that_its_window_reaches(kv_len: int, window: int, pages: list[int]) -> None:
    tasks = prepare([Bounds(0, 1, kv_len)], table(1, 2, 3, 4, 5, 6), LayerView(PAGE, 1, torch.float32, window))
    assert tasks.decodes[0].gather.tolist() == pages
    seen = tasks.decodes[0].mask.flatten() == 0
    assert seen.sum() == min(kv_len, window or kv_len)


@pytest.mark.parametrize(
    ("q_len", "kv_len", "window", "pages", "keys"),
    [
        (10, 40, 0, [1, 2, 3, 4, 5], 40),
        (10, 40, 40, [1, 2, 3, 4, 5], 40),
        (10, 40, 7, [4, 5], 16),  # the first query, at 30, sees 24 to 30
        (10, 40, 8, [3, 4, 5], 24),
        (40, 40, 3, [1, 2, 3, 4, 5], 40),
    ],
)
def test_a_prompt_reads_the_pages_that_its_first_window_reaches(
    q_len: int, kv_len: int, window: int, pages: list[int], keys: int
) -> None:
    tasks = prepare([Bounds(0, q_len, kv_len)], table(1, 2, 3, 4, 5, 6), LayerView(PAGE, 1, torch.float32, window))
    task = tasks.prompts[0]
    assert (task.gather.tolist(), task.keys) == (pages, keys)
    assert task.mask is not None
    for row, seen in enumerate(task.mask == 0):
        position, start = kv_len - q_len + row, kv_len - keys
        first = max(0, position - window + 1) if window else 0
        assert (seen.nonzero().flatten() + start).tolist() == list(range(first, position + 1))


@pytest.mark.parametrize("window", [0, 20, 99])
def test_a_whole_prompt_has_no_mask_unless_it_must_have_one(window: int) -> None:
    for always in (False, True):
        tasks = prepare([Bounds(0, 20, 20)], table(1, 2, 3), LayerView(PAGE, 1, torch.float32, window, always))
        assert (tasks.prompts[0].mask is None) is not always


def test_decodes_past_their_window_are_computed_together_whatever_their_length() -> None:
    bounds = [Bounds(row, 1, kv_len) for row, kv_len in enumerate([17, 23, 24, 25, 48])]
    tasks = prepare(bounds, torch.arange(1, 31).view(5, 6), LayerView(PAGE, 1, torch.float32, window=16))
    assert [group.rows.tolist() for group in tasks.decodes] == [[0, 1, 2, 3, 4]]
