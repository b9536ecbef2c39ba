"""Every message survives the door; nothing else comes through."""

from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep import door
from fairstep.door import Admit, FrameReader, Message, Orders, Report, Sampling, Stop, frame, parse

HEADER_BYTES = 4
WHOLE = st.integers(-(2**63), 2**64 - 1)  # what msgpack can say
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def messages(kind: type) -> st.SearchStrategy[Any]:
    """Any value of a message type, built from the types of its fields."""
    return st.builds(kind, **{each.name: of(each.type) for each in msgspec.structs.fields(kind)})


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type."""
    args = get_args(kind)
    origin = getattr(kind, "__origin__", None)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return messages(kind)
    if origin is tuple:
        return st.lists(of(args[0]), max_size=3).map(tuple) if args[-1] is ... else st.tuples(*map(of, args))
    if origin is dict:
        return st.dictionaries(of(args[0]), of(args[1]), max_size=3)
    if kind in (int, float, str, bool, type(None)):
        return {int: WHOLE, float: NUMBERS, str: TEXT, bool: st.booleans(), type(None): st.none()}[kind]
    if all(isinstance(arg, str) for arg in args):
        return st.sampled_from(args)
    return st.one_of([of(arg) for arg in args])


@pytest.mark.parametrize("kind", get_args(Message), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_message_comes_through_as_it_went_in(kind: type, data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    sent = frame(message)
    assert int.from_bytes(sent[:HEADER_BYTES], "big") == len(sent) - HEADER_BYTES
    (received,) = FrameReader().feed(sent)
    assert type(received) is kind
    assert received == message


@given(st.binary(max_size=64))
def test_noise_is_refused_by_name(noise: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse(b"\xc1" + noise)  # a byte msgpack never uses


def test_a_message_of_the_wrong_shape_is_refused() -> None:
    for body in (["orders", "one"], ["report", 1], ["unheard of", 1], {"number": 1}):
        with pytest.raises(msgspec.ValidationError):
            parse(msgspec.msgpack.encode(body))


def test_a_truncated_body_is_refused() -> None:
    body = frame(Orders(number=1, cancel=((1, 2),)))[HEADER_BYTES:]
    for end in range(len(body)):
        with pytest.raises(msgspec.DecodeError):
            parse(body[:end])


@given(st.lists(st.integers(0, 40), max_size=8))
def test_frames_come_out_whole_however_they_are_cut(cuts: list[int]) -> None:
    sent = [Orders(1), Orders(2, cancel=((1, 2),)), Stop()]
    data, reader = b"".join(map(frame, sent)), FrameReader()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    got = [message for start, end in pairwise(edges) for message in reader.feed(data[start:end])]
    assert got == sent


def test_messages_are_frozen_and_hashable() -> None:
    admit = Admit(seq=1, attempt=1, tokens=(1, 2), prompt_len=2, sampling=Sampling())
    with pytest.raises(AttributeError):
        admit.seq = 2  # type: ignore[misc]
    assert len({admit, Admit(seq=1, attempt=1, tokens=(1, 2), prompt_len=2, sampling=Sampling())}) == 1


def test_a_long_prompt_takes_few_bytes() -> None:
    admit = Admit(seq=1, attempt=1, tokens=tuple(range(3000)), prompt_len=3000, sampling=Sampling())
    assert len(frame(Orders(number=1, admit=(admit,)))) < 3 * 3000 + 200


def test_the_door_names_no_place_in_a_batch() -> None:
    names = {each.name for kind in (Report, door.Result, door.SliceRecord) for each in msgspec.structs.fields(kind)}
    assert not names & {"row", "index", "slot", "seat"}
