"""response_writer.py: events numbered without a gap, whose deltas are the text, also after an earlier life."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import ServerOverloaded
from fairstep.request import Delta, Usage
from fairstep.serving.limits import Limits
from fairstep.serving.response_body import response_ask
from fairstep.serving.response_writer import ResponseWriter, Told, text_of
from fairstep.serving.writer import Tally

TEXTS = st.lists(st.text("aé€", max_size=3), max_size=8)


def writer(told: Told | None = None, **fields: Any) -> ResponseWriter:
    body, ask = response_ask({"input": "hi", **fields}, Limits())
    return ResponseWriter("resp_1", "m", body, ask, 100, told or Told())


def tally(outputs: int) -> Tally:
    tally = Tally(3, 1)
    tally.add(0, Delta("r", usage=Usage(3, outputs, 1)))
    return tally


@given(TEXTS, st.data())
def test_an_answer_in_two_lives_is_told_as_in_one(texts: list[str], data: st.DataObject) -> None:
    def tell(each: ResponseWriter, parts: list[str]) -> list[Any]:
        return [event for part in parts for event in each.add(Delta("r", part))]

    alone = writer()
    whole = [*alone.begin(), *tell(alone, texts), *alone.end("stop", tally(8))]
    cut = data.draw(st.integers(0, len(texts)))
    first = writer()
    before = [*first.begin(), *tell(first, texts[:cut])]
    second = writer(Told(len(before), text_of(before)))
    again = "".join(texts[:cut])  # the engine tells it once more, in one piece with what follows or not
    joined = (
        [again + "".join(texts[cut : cut + 1]), *texts[cut + 1 :]]
        if data.draw(st.booleans())
        else [again, *texts[cut:]]
    )
    after = [*tell(second, joined), *second.end("stop", tally(8))]
    assert before + after == whole
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    assert text_of(whole) == "".join(texts) == alone.text


@pytest.mark.parametrize(("reason", "status"), [("stop", "completed"), ("length", "incomplete")])
def test_the_last_event_is_the_whole_response(reason: str, status: str) -> None:
    one = writer(metadata={"a": "b"})
    one.begin()
    one.add(Delta("r", "hello"))
    *_, last = one.end(reason, tally(5))
    assert last["type"] == f"response.{status}" and last["response"] == one.whole()
    assert one.whole()["output"][0]["content"][0]["text"] == "hello"
    assert one.whole()["usage"]["output_tokens"] == 5 and one.whole()["usage"]["input_tokens_details"] == {
        "cached_tokens": 1
    }
    assert (one.whole()["incomplete_details"] is None) == (status == "completed")


def test_what_runs_in_the_background_is_queued_until_its_first_text() -> None:
    one = writer(background=True)
    assert [event["type"] for event in one.begin()] == ["response.created", "response.queued"]
    assert one.add(Delta("r", "")) == []
    kinds = [event["type"] for event in one.add(Delta("r", "a"))]
    assert kinds == [
        "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta",
    ]  # fmt: skip
    assert one.whole()["status"] == "in_progress"


def test_failing_and_being_cancelled_are_ends_with_what_there_was() -> None:
    one, other = writer(), writer()
    one.begin()
    [failed] = one.fail(ServerOverloaded("full"))
    assert failed["response"]["error"] == {"code": "server_overloaded", "message": "full"}
    assert failed["response"]["status"] == "failed" and failed["response"]["output"] == []
    other.begin()
    other.add(Delta("r", "half"))
    [cancelled] = other.cancel()
    assert cancelled["response"]["output"][0]["content"][0]["text"] == "half"
