"""Prompts in token ids: what is kept of a long one, and the text that an echo gives back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import fakes_sentencepiece
from fairstep.errors import ContextTooLong
from fairstep.serving.ask import Ask, chat_ask, completion_ask
from fairstep.serving.prompt_tokens import PromptTokens, tokenize
from fairstep.text.tokenizer import Tokenizer
from fakes_serving import CONTEXT, FakeEngine, run
from fakes_text import BOS, EOS, TURN, FakeTokenizer

HI = [{"role": "user", "content": "hi"}]


def tokenized(ask: Ask, tokenizer: FakeTokenizer | Tokenizer | None = None) -> list[PromptTokens]:
    found: list[PromptTokens] = []

    async def test() -> None:
        engine: Any = FakeEngine()
        engine.tokenizer = tokenizer or engine.tokenizer
        engine.info = replace(engine.info, vocab_size=engine.tokenizer.vocab_size)
        found.extend(await tokenize(engine, ask))

    run(test)
    return found


def completion(prompt: Any, **fields: Any) -> PromptTokens:
    (found,) = tokenized(completion_ask({"prompt": prompt, **fields}))
    return found


@pytest.mark.parametrize(("keep", "ids"), [(None, b"abcd"), (2, b"cd"), (4, b"abcd"), (9, b"abcd")])
def test_the_last_tokens_are_kept(keep: int | None, ids: bytes) -> None:
    assert completion(list(b"abcd"), truncate_prompt_tokens=keep).ids == tuple(ids)


@pytest.mark.parametrize(("max_tokens", "kept"), [(50, CONTEXT - 50), (None, CONTEXT - 16), (1, CONTEXT - 1)])
def test_minus_one_keeps_what_fits_beside_the_answer(max_tokens: int | None, kept: int) -> None:
    found = completion([7] * 1000, truncate_prompt_tokens=-1, max_tokens=max_tokens)
    assert len(found.ids) == kept
    assert completion([7, 8], truncate_prompt_tokens=-1, max_tokens=max_tokens).ids == (7, 8)


def test_a_chat_is_cut_too_and_may_leave_one_token_for_the_answer() -> None:
    messages = [{"role": "user", "content": "x" * 300}]
    (found,) = tokenized(chat_ask({"messages": messages, "truncate_prompt_tokens": -1}))
    assert len(found.ids) == CONTEXT - 1


def test_an_answer_longer_than_the_context_is_refused_however_short_the_prompt_becomes() -> None:
    with pytest.raises(ContextTooLong) as refusal:
        completion("abc", truncate_prompt_tokens=-1, max_tokens=CONTEXT)
    assert refusal.value.param == "max_tokens"


@given(st.text(max_size=30).filter(bool).filter(lambda text: text.isprintable()))
def test_the_echo_of_a_text_is_the_text_whether_bos_is_added_or_not(text: str) -> None:
    for add in (True, False):
        found = completion(text, echo=True, add_special_tokens=add)
        assert found.text == text and len(found.texts) == len(found.ids) == len(text.encode()) + add


@given(st.text(alphabet="lead x é龜🫠\n", min_size=1, max_size=12))
def test_the_echo_of_a_sentencepiece_model_has_no_space_of_its_own(text: str) -> None:
    ask = completion_ask({"prompt": text, "echo": True, "max_tokens": 1})
    (found,) = tokenized(ask, fakes_sentencepiece.tokenizer())
    assert found.text == text


def test_special_tokens_written_in_a_text_are_echoed_and_those_added_are_not() -> None:
    class Marked(FakeTokenizer):
        def encode(self, text: str, *, add_special: bool = True) -> list[int]:
            bare = [TURN if char == "|" else ord(char) for char in text]
            return [BOS, *bare, EOS] if add_special else bare

    (found,) = tokenized(completion_ask({"prompt": "|a|", "echo": True}), Marked())
    assert found.texts == ("", "<turn>", "a", "<turn>", "")
    (found,) = tokenized(completion_ask({"prompt": "|a|", "echo": True, "truncate_prompt_tokens": 3}), Marked())
    assert found.texts == ("a", "<turn>", "")


@pytest.mark.parametrize(("skip", "text"), [(True, "a"), (False, "<bos>a")])
def test_the_echo_of_token_ids_shows_special_tokens_as_asked(skip: bool, text: str) -> None:
    assert completion([BOS, ord("a")], echo=True, skip_special_tokens=skip).text == text


def test_a_prompt_that_ends_inside_a_character_shows_what_is_there() -> None:
    assert completion([*b"a\xf0\x9f"], echo=True).texts == ("a", "", "\ufffd")


def test_without_an_echo_no_text_is_made() -> None:
    assert completion("abc").texts == ()


def test_a_long_prompt_is_echoed_the_same_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = completion_ask({"prompt": "héllo", "echo": True})
    (short,) = tokenized(ask)
    monkeypatch.setattr("fairstep.serving.off_loop.MANY_TOKENS", 1)
    assert tokenized(ask) == [short]
