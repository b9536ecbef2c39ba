"""sampling_terms.py: what params mean for one model. What crosses the door is also in test_front.py."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from fairstep.door import Sampling
from fairstep.errors import ContextTooLong
from fairstep.request import Place, Request, SamplingParams
from fairstep.sampling_terms import SamplingTerms
from fakes_text import EOS, TURN, FakeTokenizer
from fakes_worker import ready, settings

DEFAULTS = {"temperature": 0.5, "top_k": 40.0, "repetition_penalty": 1.1}


def terms(**defaults: float) -> SamplingTerms:
    return SamplingTerms(changed(ready(settings()), defaults=defaults), FakeTokenizer(), draw_seed=lambda: 7)


def sampling(of: SamplingTerms, **params: Any) -> Sampling:
    return of.sampling(Request.at((1, 2, 3), SamplingParams(**params), 0.0, Place()))


def test_open_fields_take_the_models_defaults() -> None:
    found = sampling(terms(**DEFAULTS))
    assert (found.temperature, found.top_k, found.repetition, found.top_p) == (0.5, 40, 1.1, 1.0)
    found = sampling(terms(**DEFAULTS), temperature=0, repetition_penalty=1, top_k=-1)
    assert (found.temperature, found.top_k, found.repetition) == (0.0, 0, 1.0)


@pytest.mark.parametrize(("seed", "sent"), [(None, 7), (0, 0), (-1, 2**64 - 1), (2**64 - 1, 2**64 - 1)])
def test_a_seed_is_a_number_of_64_bits_and_drawn_where_none_is_named(seed: int | None, sent: int) -> None:
    assert sampling(terms(), seed=seed).seed == sent


def test_an_answer_without_a_limit_fills_the_context() -> None:
    assert sampling(terms()).max_tokens == 197
    with pytest.raises(ContextTooLong):
        sampling(terms(), max_tokens=198)


def test_what_ends_an_answer_is_told_once_the_models_own_first() -> None:
    found = sampling(terms(), stop=["<turn>", "plain"], stop_token_ids=[5, EOS])
    assert found.stop_ids == (EOS, 5, TURN)
    assert sampling(terms(), ignore_eos=True).stop_ids == ()
    assert terms().special_stops(SamplingParams(stop=["<turn>", "plain"])) == {TURN: "<turn>"}


def test_every_spelling_of_a_bad_word_is_sent() -> None:
    class Spelling(FakeTokenizer):
        def bad_word_ids(self, word: str) -> tuple[tuple[int, ...], ...]:
            return tuple(word.encode()), tuple(f" {word}".encode())

    own = SamplingTerms(ready(settings()), Spelling(), draw_seed=lambda: 7)
    request = Request.at((1,), SamplingParams(bad_words=["a", "bc"]), 0.0, Place())
    assert own.sampling(request).bad_words == ((97,), (32, 97), (98, 99), (32, 98, 99))
    assert own.sampling(replace(request, params=SamplingParams())).bad_words == ()


def test_siblings_do_not_split_the_same_words_again() -> None:
    class Counting(FakeTokenizer):
        asked = 0

        def bad_word_ids(self, word: str) -> tuple[tuple[int, ...], ...]:
            self.asked += 1
            return super().bad_word_ids(word)

    vocabulary = Counting()
    own = SamplingTerms(ready(settings()), vocabulary, draw_seed=lambda: 7)
    request = Request.at((1,), SamplingParams(bad_words=["a", "bc"]), 0.0, Place())
    found = {own.sampling(sibling).bad_words for sibling in request.siblings(5)}
    assert found == {((97,), (98, 99))} and vocabulary.asked == 2
    assert own.sampling(replace(request, params=SamplingParams(bad_words=["d"]))).bad_words == ((100,),)
