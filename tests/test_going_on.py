"""An answer that goes on where an earlier life of the server left it: the same text, and nothing twice."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep import AsyncEngine, SamplingParams
from fairstep.errors import InvalidRequest
from fairstep.request import Completion, Delta
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build

TEXT = "abc<END>dé€f" * 3


def says(position: int) -> int:
    return TEXT.encode()[position % len(TEXT.encode())]


def engine() -> AsyncEngine:
    build = fake_build(FakeRunner(draw=lambda position: says(position - 3)))
    return AsyncEngine("fake", tokenizer=FakeTokenizer(), in_process=True, build_worker=build)


async def answer(params: SamplingParams, drawn: tuple[int, ...] = ()) -> list[Delta]:
    async with engine() as live:
        stream = live.submit([1, 2, 3], params, drawn=drawn)
        deltas = [delta async for delta in stream]
        live.check()
        return deltas


STOPS = st.sampled_from(((), ("<END>d",), ("zzz",), ("f",), ("<EN",)))


@given(st.integers(1, 40), STOPS, st.data())
def test_what_was_drawn_is_told_again_and_the_rest_is_the_same(
    most: int, stop: tuple[str, ...], data: st.DataObject
) -> None:
    params = SamplingParams(max_tokens=most, stop=stop, temperature=0.0)
    whole = Completion.join(asyncio.run(answer(params)))
    drawn = whole.token_ids[: data.draw(st.integers(0, max(0, len(whole.token_ids) - 1)))]
    again = Completion.join(asyncio.run(answer(params, drawn)))
    assert (again.text, again.token_ids, again.finish_reason) == (whole.text, whole.token_ids, whole.finish_reason)
    assert again.usage.completion_tokens == whole.usage.completion_tokens


def test_what_was_drawn_comes_at_once_and_is_not_computed_anew() -> None:
    deltas = asyncio.run(answer(SamplingParams(max_tokens=10), tuple(TEXT.encode()[:6])))
    assert sum(len(delta.token_ids) for delta in deltas) == 10
    assert "".join(delta.text for delta in deltas).startswith("abc<EN")


def test_log_probabilities_of_what_was_drawn_are_not_known() -> None:
    with pytest.raises(InvalidRequest, match="log probabilities"):
        asyncio.run(answer(SamplingParams(logprobs=1), (97,)))
