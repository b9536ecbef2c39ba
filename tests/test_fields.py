"""Checked reading of a file's keys: the right kind of value, or an error that names file and key."""

from pathlib import Path

import pytest

from fairstep.errors import ModelError
from fairstep.model.fields import Fields, NotOurs

FILE = Path("some/config.json")


def fields(**values: object) -> Fields:
    return Fields(values, FILE)


def test_null_is_as_good_as_absent() -> None:
    assert not fields(size=None).has("size")
    assert fields(size=None).integer("size", 3) == fields().integer("size", 3) == 3


def test_a_prefix_is_part_of_the_key_in_reading_and_in_errors() -> None:
    prefixed = Fields({"llama.size": 5, "size": 6}, FILE, "llama.")
    assert prefixed.integer("size") == 5
    with pytest.raises(ModelError, match=r"^some/config\.json: llama\.other is missing$"):
        prefixed.integer("other")


@pytest.mark.parametrize("value", [True, 2.0, "2", 0, 11])
def test_an_integer_is_a_whole_number_within_its_limits(value: object) -> None:
    assert fields(size=10).integer("size", high=10) == 10
    with pytest.raises(ModelError, match=r"^some/config\.json: size must be an integer from 1 to 10, not "):
        fields(size=value).integer("size", high=10)


@pytest.mark.parametrize("value", [True, "2", 0, -1.0, float("inf"), float("nan")])
def test_a_number_is_finite_and_above_zero(value: object) -> None:
    assert fields(eps=1).number("eps") == 1.0
    with pytest.raises(ModelError, match="eps must be a number above 0"):
        fields(eps=value).number("eps")


def test_a_flag_is_true_or_false_and_a_text_is_a_string() -> None:
    assert fields(tied=True).flag("tied") and not fields().flag("tied")
    with pytest.raises(ModelError, match="tied must be true or false, not 1"):
        fields(tied=1).flag("tied")
    with pytest.raises(ModelError, match="kind must be a string, not 1"):
        fields(kind=1).text("kind")


def test_a_list_of_numbers_has_its_length_and_kind() -> None:
    assert fields(factors=[1, 2.5]).numbers("factors", 2) == (1.0, 2.5)
    assert fields(flags=[1, 0]).integers("flags", 2) == (1, 0)
    for wrong in ([1], [1, 0], [1, "2"], [1, True], 3, None):
        with pytest.raises(ModelError, match="factors must be a list of 2 numbers above 0, not "):
            fields(factors=wrong).numbers("factors", 2)
    for wrong in ([1], [1, 2.0], [1, True], 3, None):
        with pytest.raises(ModelError, match="flags must be a list of 2 integers, not "):
            fields(flags=wrong).integers("flags", 2)


def test_what_is_not_ours_is_an_error_of_its_own_kind() -> None:
    assert isinstance(fields().not_ours("kind", "is odd"), NotOurs)
    assert str(fields().not_ours("kind", "is odd")) == "some/config.json: kind is odd"
    assert not isinstance(fields().error("kind", "is odd"), NotOurs)


def test_token_ids_are_one_id_or_a_list() -> None:
    assert fields().token_ids("eos", 10) == ()
    assert fields(eos=0).token_ids("eos", 10) == (0,)
    assert fields(eos=[2, 9]).token_ids("eos", 10) == (2, 9)


def test_a_whole_top_k_is_an_integer_however_it_is_written() -> None:
    defaults = fields(top_k=50.0, top_p=1).sampling({"top_k": "top_k", "top_p": "top_p"})
    assert defaults == {"top_k": 50, "top_p": 1.0} and isinstance(defaults["top_k"], int)


def test_a_long_or_unprintable_value_is_shown_in_one_short_line() -> None:
    with pytest.raises(ModelError) as caught:
        fields(size=["\n\x1b"] * 10_000).integer("size")
    assert len(str(caught.value)) < 400 and str(caught.value).isprintable()
    assert str(fields().error("kind", "is one\n\x1bthing")).endswith("kind is one thing")
