"""Text, ids and count of one answer stay together, with stop strings and without."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.text.stream import Piece, TextStream
from fakes_text import BOS, EOS, TURN, FakeTokenizer


def answer(
    ids: list[int], stops: tuple[str, ...] = (), min_tokens: int = 0, *, include_stop: bool = False
) -> tuple[Piece, list[Piece], TextStream]:
    """All pieces of an answer, token by token, and the same joined."""
    stream = TextStream(FakeTokenizer().detokenizer(()), stops, min_tokens, include_stop=include_stop)
    pieces = [stream.push((token,)) for token in ids] + [stream.finish()]
    return joined(pieces), pieces, stream


def joined(pieces: list[Piece]) -> Piece:
    stopped = next((piece.stopped for piece in pieces if piece.stopped is not None), None)
    ids = tuple(token for piece in pieces for token in piece.token_ids)
    return Piece("".join(piece.text for piece in pieces), ids, stopped)


streams = st.lists(st.sampled_from([*b"aab\n", *"é🫠".encode(), BOS]), max_size=30)
stop_strings = st.lists(st.text(alphabet="ab\né", min_size=1, max_size=4), max_size=3).map(tuple)


@given(streams, stop_strings)
def test_text_is_cut_at_the_stop_string_and_ids_end_with_the_token_that_completed_it(
    ids: list[int], stops: tuple[str, ...]
) -> None:
    whole, _, stream = answer(ids, stops)
    plain = [FakeTokenizer().decode(ids[: n + 1]) for n in range(len(ids))]
    ending = next((n for n, text in enumerate(plain) if any(stop in text for stop in stops)), None)
    if ending is None:
        assert whole == Piece(FakeTokenizer().decode(ids), tuple(ids))
        assert stream.count == len(ids)
        return
    assert whole.token_ids == tuple(ids[: ending + 1])
    assert stream.count == ending + 1
    assert whole.stopped in stops
    assert whole.text == min((plain[ending].split(stop)[0] for stop in stops if stop in plain[ending]), key=len)


@given(streams, stop_strings, st.integers(0, 12))
def test_a_stop_string_that_stays_ends_the_text_and_changes_nothing_else(
    ids: list[int], stops: tuple[str, ...], min_tokens: int
) -> None:
    cut, _, _ = answer(ids, stops, min_tokens)
    whole, pieces, stream = answer(ids, stops, min_tokens, include_stop=True)
    assert whole == Piece(cut.text + (cut.stopped or ""), cut.token_ids, cut.stopped)
    assert stream.count == len(cut.token_ids) and stream.held == 0
    shown = [piece for piece in pieces if piece.text or piece.token_ids]
    assert len(shown) <= len(ids) + 1


@given(streams, stop_strings, st.integers(0, 12), st.lists(st.integers(0, 30), max_size=5), st.booleans())
def test_any_grouping_of_the_tokens_gives_the_same_answer(
    ids: list[int], stops: tuple[str, ...], min_tokens: int, cuts: list[int], include_stop: bool
) -> None:
    stream = TextStream(FakeTokenizer().detokenizer(()), stops, min_tokens, include_stop=include_stop)
    places = sorted({0, len(ids), *(min(cut, len(ids)) for cut in cuts)})
    pieces = [stream.push(ids[a:b]) for a, b in pairwise(places)] + [stream.finish()]
    assert joined(pieces) == answer(ids, stops, min_tokens, include_stop=include_stop)[0]


@given(streams, stop_strings)
def test_an_id_never_leaves_before_the_last_of_its_text(ids: list[int], stops: tuple[str, ...]) -> None:
    _, pieces, _ = answer(ids, stops)
    shown, left = "", 0
    for piece in pieces[:-1]:
        if piece.stopped is not None:
            return
        shown += piece.text
        left += len(piece.token_ids)
        assert shown.startswith(FakeTokenizer().decode(ids[:left]))


def test_the_letters_of_an_end_mark_are_never_shown() -> None:
    whole, pieces, _ = answer([*b"Bye <|im_end|> tail"], ("<|im_end|>",))
    assert (whole.text, whole.stopped) == ("Bye ", "<|im_end|>")
    assert not any("<" in piece.text for piece in pieces)


def test_held_text_holds_its_ids_and_both_come_out_at_the_end() -> None:
    _, pieces, stream = answer([*b"aZZ"], ("ZZZZZZZZ",))
    assert pieces == [Piece("a", (97,)), Piece("", ()), Piece("", ()), Piece("ZZ", (90, 90))]
    assert stream.count == 3


def test_the_tokens_of_one_character_leave_with_it() -> None:
    first, second, third, fourth = "🫠".encode()
    _, pieces, _ = answer([first, second, third, fourth])
    assert pieces[:4] == [Piece("", ()), Piece("", ()), Piece("", ()), Piece("🫠", (first, second, third, fourth))]


def test_a_special_token_leaves_at_once_without_text() -> None:
    _, pieces, _ = answer([97, BOS, 98])
    assert pieces[:3] == [Piece("a", (97,)), Piece("", (BOS,)), Piece("b", (98,))]


def test_every_substring_of_an_answer_as_stop_string_cuts_where_find_does() -> None:
    text = "the cat sat on the mat — the ✅ cat"
    for start in range(len(text)):
        for length in range(2, 13):
            stop = text[start : start + length]
            whole, _, stream = answer([*text.encode()], (stop,))
            end = text.find(stop) + len(stop)
            assert whole.text == text[: text.find(stop)]
            assert stream.count == len(text[:end].encode())


def test_tokens_after_a_stop_string_are_neither_shown_nor_counted() -> None:
    stream = TextStream(FakeTokenizer().detokenizer(()), ("\n",))
    assert stream.push([*b"a\nbc"]) == Piece("a", (97, 10), "\n")
    assert stream.push([*b"more"]) == Piece("", ())
    assert stream.finish() == Piece("", ())
    assert stream.count == 2


def test_a_stop_id_is_counted_and_named_but_has_no_text() -> None:
    stream = TextStream(FakeTokenizer().detokenizer((), skip_special=False))
    assert stream.push([97, EOS], stop_id=EOS) == Piece("a", (97, EOS))
    assert stream.count == 2


def test_a_stop_id_after_held_text_comes_out_with_it() -> None:
    stream = TextStream(FakeTokenizer().detokenizer(()), ("ab",))
    assert stream.push([97, EOS], stop_id=EOS) == Piece("", ())
    assert stream.finish() == Piece("a", (97, EOS))


def test_a_stop_string_completed_before_the_stop_id_wins() -> None:
    stream = TextStream(FakeTokenizer().detokenizer(()), ("a",))
    assert stream.push([97, EOS], stop_id=EOS) == Piece("", (97,), "a")
    assert stream.count == 1


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 5])
def test_no_stop_string_ends_an_answer_before_min_tokens(min_tokens: int) -> None:
    whole, _, stream = answer([10] * 8, ("\n",), min_tokens)
    assert stream.count == max(1, min_tokens)
    assert whole.text == "\n" * (stream.count - 1)


def test_text_from_before_min_tokens_takes_no_part_in_a_match() -> None:
    whole, pieces, _ = answer([*b"abab"], ("ab",), min_tokens=2)
    assert pieces[0].text == "a"  # shown at once, though it could begin a match
    assert (whole.text, whole.stopped) == ("ab", "ab")


def test_an_unfinished_character_comes_out_with_its_ids_at_the_end() -> None:
    first, second = "é".encode()
    whole, _, _ = answer([97, first])
    assert whole == Piece("a\ufffd", (97, first))
    assert second  # the byte that never came


def test_a_stop_id_whose_text_stays_is_shown_as_it_would_be_elsewhere() -> None:
    plain = TextStream(FakeTokenizer().detokenizer(()), include_stop=True)
    assert plain.push([97, 98], stop_id=98) == Piece("ab", (97, 98))
    hidden = TextStream(FakeTokenizer().detokenizer((), skip_special=True), include_stop=True)
    assert hidden.push([97, EOS], stop_id=EOS) == Piece("a", (97, EOS))
    shown = TextStream(FakeTokenizer().detokenizer((), skip_special=False), include_stop=True)
    assert shown.push([97, EOS], stop_id=EOS) == Piece("a<eos>", (97, EOS))


@pytest.mark.parametrize("skip_special", [True, False])
def test_a_stop_string_that_is_a_special_token_stays_even_where_such_are_hidden(skip_special: bool) -> None:
    stream = TextStream(
        FakeTokenizer().detokenizer((), skip_special=skip_special),
        ("<turn>",),
        include_stop=True,
        special_stops={TURN: "<turn>"},
    )
    half = "é".encode()[0]
    assert joined([stream.push([97, half]), stream.push([TURN], stop_id=TURN), stream.finish()]) == Piece(
        "a\ufffd<turn>", (97, half, TURN), "<turn>"
    )


def test_a_stop_string_that_the_stop_token_completes_wins_if_it_stays() -> None:
    stream = TextStream(FakeTokenizer().detokenizer(()), ("ab",), include_stop=True)
    assert stream.push([97, 98], stop_id=98) == Piece("ab", (97, 98), "ab")
