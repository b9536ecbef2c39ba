"""Maxima, sums and orders: right at every width, and bitwise the same whatever rows are beside."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairstep.model.row_math import PIECE, highest, likeliest, row_sums, softmax_mass, softmax_weights, take_rows

WIDTHS = [1, 2, 255, 256, 257, 511, 512, 513, 1000, 6001]


def table(rows: int, width: int, *, step: float = 0.0) -> torch.Tensor:
    made = torch.randn(rows, width, generator=torch.Generator().manual_seed(width))
    return (made / step).round() * step if step else made


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("step", [0.0, 1.0])
def test_the_likeliest_is_the_first_of_the_highest(width: int, step: float) -> None:
    logits = table(40, width, step=step)
    for ids, row in zip(likeliest(logits).tolist(), logits.tolist(), strict=True):
        assert ids == row.index(max(row))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_likeliest_is_found_at_every_place(width: int) -> None:
    places = sorted({0, width // 2, max(0, width - PIECE - 1), max(0, width - PIECE), width - 1})
    logits = torch.full((len(places), width), -math.inf)
    logits[range(len(places)), places] = -5.0
    assert likeliest(logits).tolist() == places
    logits[range(len(places)), places] = math.nan
    assert likeliest(logits).tolist() == places


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """torch shares one long row between threads, and many rows as whole ones."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("width", [*WIDTHS, 49_152, 49_153])
def test_sums_are_right_and_the_same_alone(width: int, threads: int) -> None:
    values = table(9, width).exp()
    sums = row_sums(values)
    assert sums.dtype == torch.float64
    torch.testing.assert_close(sums, values.double().sum(dim=-1), rtol=1e-6, atol=0)
    for place in range(9):
        assert torch.equal(row_sums(values[place : place + 1]), sums[place : place + 1])


@pytest.mark.parametrize("width", [1, 300, 49_153])
def test_a_mass_is_the_sum_of_weights_and_the_same_alone(width: int, threads: int) -> None:
    logits = table(9, width)
    logits[:, 1::3] = -math.inf
    temperature = torch.linspace(0.2, 3.0, 9, dtype=torch.float64)
    found = softmax_mass(logits, temperature)
    top = logits.amax(dim=-1, keepdim=True).double()
    torch.testing.assert_close(
        found, ((logits.double() - top) / temperature[:, None]).exp().sum(dim=-1), rtol=1e-5, atol=0
    )
    assert torch.equal(row_sums(softmax_weights(logits, temperature)), found)
    for place in range(9):
        one = slice(place, place + 1)
        assert torch.equal(softmax_mass(logits[one], temperature[one]), found[one])


@given(st.sampled_from([1, 2, 30, 300]), st.data(), st.booleans(), st.integers(0, 1000))
def test_the_highest_come_in_order_and_of_equals_the_lowest_ids(
    width: int, data: st.DataObject, holes: bool, seed: int
) -> None:
    size = data.draw(st.integers(1, width))
    logits = torch.randn(3, width, generator=torch.Generator().manual_seed(seed)).mul_(2).round()  # ties, -0.0
    if holes:
        logits[:, ::2] = -math.inf
    values, ids = highest(logits, size)
    for row, some, places in zip(logits.tolist(), values.tolist(), ids.tolist(), strict=True):
        assert places == sorted(range(width), key=lambda place: (-row[place], place))[:size]
        assert some == [row[place] for place in places]


def test_all_rows_are_taken_without_a_copy() -> None:
    logits = table(3, 5)
    assert take_rows(logits, [0, 1, 2]) is logits
    assert torch.equal(take_rows(logits, [0, 2]), logits[[0, 2]])
