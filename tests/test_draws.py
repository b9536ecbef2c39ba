"""What a cut decides on and what blocks change: nothing that hangs on other rows."""

import math
from collections.abc import Iterator

import pytest
import torch

from fairstep.door import Sampling
from fairstep.model import draws
from fairstep.model.draws import Draws, draw_cut, draw_whole
from fairstep.model.row import Row


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """A test may change how many threads torch has."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def logits(rows: int, vocab: int, seed: int = 3) -> torch.Tensor:
    tail = -1.6 * torch.log(torch.arange(1, vocab + 1, dtype=torch.float32))
    return tail + torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def row(position: int = 0, **options: float) -> Row:
    return Row(Sampling(**{"temperature": 0.9, **options}), position)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_cut_decides_on_is_bitwise_the_same_alone_and_in_a_batch(threads: int) -> None:
    torch.set_num_threads(threads)
    table = logits(8, 49_153)
    rows = [row(top_p=0.9)] * 8
    together = Draws.of(table, rows).mass
    for place in range(8):
        assert torch.equal(Draws.of(table[place : place + 1], rows[:1]).mass, together[place : place + 1])


def test_settings_that_are_off() -> None:
    made = Draws.of(logits(2, 50), [row(), row(top_k=7, top_p=0.5, min_p=0.25)])
    assert made.top_k.tolist() == [50, 7]
    assert made.top_p.tolist() == [math.inf, 0.5]
    assert made.min_p.tolist() == [-math.inf, math.log(0.25)]
    assert made.mass.tolist() == [math.inf, math.inf]  # top_p after top_k counts its own


def test_whole_rows_in_several_blocks_equal_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Draws.of(logits(7, 6000), [row(n) for n in range(7)])
    together = draw_whole(made)
    monkeypatch.setattr(draws, "NOISE_BLOCK", 2 * 6000)
    assert torch.equal(draw_whole(made), together)


@pytest.mark.parametrize("options", [{"top_k": 700}, {"top_p": 0.99}, {"min_p": 1e-4}, {"top_p": 0.5, "top_k": 90}])
def test_each_way_of_drawing_gives_the_same(options: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    made = Draws.of(logits(40, 1000), [row(n, temperature=3.0, **options) for n in range(40)])
    stepwise = draw_cut(made)
    assert torch.equal(draws._draw_among(made, size=1000), stepwise)
    if_kept = draws._draw_if_kept(made)
    assert torch.equal(torch.where(if_kept == draws.OPEN, stepwise, if_kept), stepwise)
    monkeypatch.setattr(draws, "CANDIDATES", ())
    assert torch.equal(draw_cut(made), stepwise)


@pytest.mark.parametrize("size", draws.CANDIDATES)
def test_one_token_more_than_is_looked_at_first_can_come(size: int) -> None:
    rows = [row(n, temperature=1.0, top_k=size + 1) for n in range(3000)]
    assert int(draw_cut(Draws.of(torch.zeros(3000, 600), rows)).max()) == size
