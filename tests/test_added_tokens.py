"""Tokens matched whole: leftmost, longest, with their spaces; ids where none is given."""

from fairstep.text.added_tokens import Added, AddedTokens, with_ids


def split(text: str, *tokens: Added) -> list[str | int]:
    return list(AddedTokens(with_ids(tokens, lambda text: None, 10)).split(text))


def test_a_text_is_cut_at_its_tokens() -> None:
    assert split("a<x>b<x><x>", Added("<x>")) == ["a", 10, "b", 10, 10]
    assert split("a<x", Added("<x>")) == ["a<x"]
    assert split("", Added("<x>")) == []
    assert split("any"), split("") == (["any"], [])


def test_the_longest_of_those_that_begin_first_is_taken() -> None:
    assert split("<x>y<x>", Added("<x>"), Added("<x>y"), Added("y<x>")) == [11, 10]


def test_spaces_belong_to_a_token_that_says_so() -> None:
    assert split("a  <x> \nb", Added("<x>", lstrip=True)) == ["a", 10, " \nb"]
    assert split("a  <x> \nb", Added("<x>", rstrip=True)) == ["a  ", 10, "b"]


def test_a_token_that_is_a_word_of_its_own_is_not_found_inside_one() -> None:
    assert split("xax a", Added("a", single_word=True)) == ["xax ", 10]


def test_offsets_count_characters() -> None:
    assert split("🫠é龜<x>🫠", Added("<x>")) == ["🫠é龜", 10, "🫠"]


def test_tokens_without_an_id_take_that_of_their_spelling_or_the_next_free_one() -> None:
    tokens = [Added("a"), Added("b", 12), Added("c"), Added("d")]
    assert with_ids(tokens, {"a": 3}.get, 10) == {3: tokens[0], 12: tokens[1], 13: tokens[2], 14: tokens[3]}
