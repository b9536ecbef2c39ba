"""limits.py: what counts for which request, and what is reserved of it."""

import pytest

from fairstep.admission.limits import Limit, Need, Quantities, What, applying

CHAT = "/v1/chat/completions"


def limit(what: What = "tokens", amount: int = 100, endpoint: str = "*", model: str = "*") -> Limit:
    return Limit(what=what, per="minute", amount=amount, endpoint=endpoint, model=model)


@pytest.mark.parametrize(
    ("what", "part"), [("requests", 1), ("input_tokens", 20), ("output_tokens", 30), ("tokens", 50)]
)
def test_a_limit_counts_its_part_of_a_request(what: What, part: int) -> None:
    assert limit(what).part(Quantities(1, 20, 30)) == part


def test_limits_apply_by_the_patterns_of_endpoint_and_model() -> None:
    heavy, chat, all_of_it = limit(model="heavy-*"), limit(endpoint="/v1/chat/*"), limit()
    assert applying((heavy, chat, all_of_it), CHAT, "heavy-70b") == (heavy, chat, all_of_it)
    assert applying((heavy, chat, all_of_it), "/v1/embeddings", "light") == (all_of_it,)


@pytest.mark.parametrize(
    ("what", "reserved"), [("requests", 1), ("input_tokens", 300), ("output_tokens", 100), ("tokens", 300)]
)
def test_a_prompt_is_reserved_whole_and_guessed_outputs_up_to_the_limit(what: What, reserved: int) -> None:
    assert limit(what).reserved(Quantities(1, 300, 1024)) == reserved


def test_outputs_are_guessed_from_what_is_usual_and_allowed() -> None:
    assert Need(prompt_tokens=1, max_tokens=50).outputs == 50
    assert Need(prompt_tokens=1, max_tokens=50, expected=8).outputs == 8
    assert Need(prompt_tokens=1, max_tokens=5, expected=8, sequences=3).outputs == 15


def test_a_counter_keeps_its_name_when_the_amount_changes_and_no_other_has_it() -> None:
    assert limit(amount=5).counted == limit(amount=6).counted
    others = [limit("requests"), limit(endpoint="a"), limit(model="a"), limit(endpoint="a b"), limit(endpoint="a' 'b")]
    assert len({each.counted for each in [*others, limit()]}) == 6


def test_a_limit_reads_as_words() -> None:
    assert str(limit("input_tokens", 5, model="heavy-*")) == "5 input tokens a minute (model heavy-*)"
    assert str(limit()) == "100 tokens a minute"
