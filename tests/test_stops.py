"""Stop strings: found wherever the pieces are cut, never shown in part."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fairstep.text.stops import StopMatcher


def first_completed(text: str, stops: list[str]) -> tuple[str, str | None]:
    """By str.find over the whole text: the match that ends first, and of those the one that begins first."""
    found = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    _, start, stop = min(found)
    return text[:start], stop


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)] or [""]


few_letters = st.text(alphabet="ab\n", min_size=1, max_size=6)


@given(
    st.text(alphabet="ab\n", max_size=40),
    st.lists(few_letters, min_size=1, max_size=4),
    st.lists(st.integers(0, 40), max_size=12),
)
def test_any_cut_of_a_text_gives_what_find_gives_on_the_whole(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopMatcher(tuple(stops))
    expected, stopped = first_completed(text, stops)
    shown, found = "", None
    for piece in pieces(text, cuts):
        safe, stop = matcher.push(piece)
        shown += safe
        found = found or stop
        assert expected.startswith(shown)
    assert (shown + matcher.flush(), found) == (expected, stopped)


@given(st.text(alphabet="ab", max_size=30), st.lists(few_letters, min_size=1, max_size=4))
def test_no_more_is_held_than_could_become_a_stop_string(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(tuple(stops))
    for char in text:
        if matcher.push(char)[1] is not None:
            return
        assert matcher.held == "" or any(stop.startswith(matcher.held) for stop in stops)


def test_one_stop_string_cuts_at_its_first_place() -> None:
    assert StopMatcher(("lo",)).push("hello lo") == ("hel", "lo")


def test_the_stop_string_completed_first_wins_over_one_that_began_earlier() -> None:
    assert StopMatcher(("abcd", "bc")).push("xabcd") == ("xa", "bc")


def test_of_two_completed_by_one_character_the_longer_is_cut() -> None:
    assert StopMatcher(("bc", "abc")).push("xabc") == ("x", "abc")


def test_nothing_comes_after_a_match() -> None:
    matcher = StopMatcher(("b",))
    assert matcher.push("abc") == ("a", "b")
    assert matcher.push("more b") == ("", None)
    assert matcher.flush() == ""


def test_a_partial_match_is_held_and_comes_out_when_it_fails() -> None:
    matcher = StopMatcher(("<|im_end|>",))
    assert matcher.push("Bye <|im") == ("Bye ", None)
    assert matcher.held == "<|im"
    assert matcher.push("age") == ("<|image", None)


def test_a_failed_match_can_begin_inside_itself() -> None:
    matcher = StopMatcher(("aab",))
    assert [matcher.push(char) for char in "aaab"] == [("", None), ("", None), ("a", None), ("", "aab")]


def test_held_text_is_flushed_at_the_end() -> None:
    matcher = StopMatcher(("stop",))
    assert matcher.push("sto") == ("", None)
    assert matcher.flush() == "sto"


def test_without_stop_strings_text_passes() -> None:
    assert StopMatcher(()).push("anything") == ("anything", None)


def test_a_long_partial_match_costs_a_few_steps_a_character() -> None:
    matcher = StopMatcher(("a" * 1023 + "b",))
    steps = 0
    advance = matcher._advance

    def counted(char: str) -> str | None:
        nonlocal steps
        steps += 1
        return advance(char)

    matcher._advance = counted  # type: ignore[method-assign]
    shown = "".join(matcher.push("a")[0] for _ in range(5000))
    assert steps == 5000  # held text is never read again
    assert shown == "a" * (5000 - 1023)


@given(st.text(alphabet="ab", max_size=30), st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3))
def test_included_stop_strings_hold_nothing_back_and_end_the_text(text: str, stops: list[str]) -> None:
    matcher, plain = StopMatcher(tuple(stops), include=True), StopMatcher(tuple(stops))
    shown, expected, ended = "", "", None
    for char in text:
        piece, ended = matcher.push(char)
        shown += piece
        before, same = plain.push(char)
        expected += before
        assert ended == same and matcher.held == ""
        if ended:
            break
    assert shown == expected + (ended or plain.flush())
