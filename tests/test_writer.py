"""What a stream's chunks say together is what the whole reply says, whatever was asked for and however it is cut."""

import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from answer_deltas import SCRIPTS, deltas_of, merged_at_random
from fairstep.request import Completion, Delta, Usage
from fairstep.serving.ask import Ask, chat_ask, completion_ask
from fairstep.serving.chat import ChatWriter
from fairstep.serving.completions import TextWriter
from fairstep.serving.prompt_tokens import PromptTokens, prompt_texts
from fairstep.serving.sse import event
from fairstep.serving.writer import Tally, Writer, best
from fakes_text import FakeTokenizer
from replay_engine import told

HI = [{"role": "user", "content": "hi"}]
PROMPT = tuple(b"hi \xf0\x9f\x80")
SHARED: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(1, 3),
    "stop": st.sampled_from([None, "END", ["ND", "é"]]),
    "skip_special_tokens": st.booleans(),
    "include_stop_str_in_output": st.booleans(),
    "return_token_ids": st.booleans(),
}
CHATS = st.fixed_dictionaries(SHARED, optional={"logprobs": st.just(True)})
TEXTS = st.fixed_dictionaries(
    {**SHARED, "logprobs": st.sampled_from([None, 0, 3]), "echo": st.booleans()},
)


def writer_of(kind: type[Writer], ask: Ask) -> Writer:
    tokenizer: Any = FakeTokenizer()
    skip_special = ask.params.skip_special_tokens
    texts = prompt_texts(tokenizer, PROMPT, range(len(PROMPT)), skip_special=skip_special) if ask.echo else ()
    return kind("fake", ask, [PromptTokens(PROMPT, texts)], tokenizer)


def streamed(kind: type[Writer], ask: Ask, answers: Sequence[list[Delta]], seed: int) -> list[Any]:
    """Chunks as a client reads them, and the same as events; the answers come in at random, each in its own order."""
    writer, short, draw = writer_of(kind, ask), writer_of(kind, ask), random.Random(seed)
    short.id, short.created = writer.id, writer.created
    left = [merged_at_random(answer, seed) for answer in answers]
    chunks = []
    while live := [index for index, deltas in enumerate(left) if deltas]:
        index = draw.choice(live)
        delta = left[index].pop(0)
        made = writer.chunks(index, delta)
        assert short.events(index, delta) == b"".join(map(event, made))
        chunks += made
    return [json.loads(msgspec.json.encode(chunk)) for chunk in chunks]


def whole(kind: type[Writer], ask: Ask, answers: Sequence[list[Delta]]) -> Any:
    writer = writer_of(kind, ask)
    for index, deltas in enumerate(answers):
        for delta in deltas:
            writer.tally.add(index, delta)
    return json.loads(msgspec.json.encode(writer.whole([Completion.join(deltas) for deltas in answers])))


def joined(chunks: Sequence[Any], index: int) -> dict[str, Any]:
    """A choice put together from its chunks, as a client does it."""
    choice: dict[str, Any] = {}
    for part in (chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index):
        assert not choice.get("finish_reason"), "nothing comes after the finish chunk"
        delta = part.get("delta", {})
        content = {"content": delta["content"]} if "content" in delta else {}
        for name, value in {**part, **content}.items():
            if name != "delta":
                choice[name] = added(choice.get(name), value)
    return choice


def added(old: Any, new: Any) -> Any:
    if old is None or new is None:
        return old if new is None else new
    if isinstance(new, dict):
        return {name: old[name] + new[name] for name in new}
    return old + new if isinstance(new, str | list) else new


def answers_of(ask: Ask, scripts: Sequence[list[int]]) -> list[list[Delta]]:
    """As many as are asked for; the prompt's log probabilities come with the first."""
    first, *others = (deltas_of(script, PROMPT, ask.params) for script in scripts[: ask.samples])
    return [first, *([msgspec.structs.replace(delta, prompt_logprobs=()) for delta in deltas] for deltas in others)]


@given(TEXTS, st.lists(SCRIPTS, min_size=3, max_size=3), st.integers())
def test_a_streamed_completion_is_the_whole_one(fields: Any, scripts: list[list[int]], seed: int) -> None:
    ask = completion_ask({"prompt": "x", **fields})
    answers = answers_of(ask, scripts)
    reply, chunks = whole(TextWriter, ask, answers), streamed(TextWriter, ask, answers, seed)
    assert [joined(chunks, index) for index in range(ask.choices)] == reply["choices"]
    for choice in reply["choices"] if ask.tops is not None else ():
        lists = choice["logprobs"]
        assert {len(values) for values in lists.values()} == {len(lists["tokens"])}
        for offset, token in zip(lists["text_offset"], lists["tokens"], strict=True):
            assert choice["text"][offset:].startswith(token)
        assert "".join(lists["tokens"]) == choice["text"]
        assert lists["text_offset"] == sorted(lists["text_offset"])


@given(CHATS, st.lists(SCRIPTS, min_size=3, max_size=3), st.integers())
def test_a_streamed_chat_is_the_whole_one(fields: Any, scripts: list[list[int]], seed: int) -> None:
    ask = chat_ask({"messages": HI, **fields})
    answers = answers_of(ask, scripts)
    reply, chunks = whole(ChatWriter, ask, answers), streamed(ChatWriter, ask, answers, seed)
    for choice in reply["choices"]:
        own = joined(chunks, choice["index"])
        assert own.pop("content") == choice.pop("message")["content"]
        own.pop("prompt_token_ids", None)
        assert (own | {"logprobs": own["logprobs"] or choice["logprobs"]}) == choice
        firsts = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert [part["delta"].get("role") for part in firsts] == ["assistant"] + [None] * (len(firsts) - 1)
    assert sum("prompt_token_ids" in chunk for chunk in chunks) == bool(ask.return_token_ids)


@given(SCRIPTS)
def test_the_bytes_of_a_chats_log_probabilities_are_those_of_its_text(script: list[int]) -> None:
    ask = chat_ask({"messages": HI, "logprobs": True})
    prompt = b"hi"
    deltas = deltas_of(script, prompt, ask.params)
    writer: Writer = ChatWriter("fake", ask, [PromptTokens(tuple(prompt))], FakeTokenizer())  # type: ignore[arg-type]
    choice = writer.whole([Completion.join(deltas)])["choices"][0]
    data = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
    assert data.decode(errors="replace") == choice["message"]["content"]


def test_usage_counts_a_prompt_once_and_the_tokens_of_all_its_answers() -> None:
    tally = Tally(10, 2)
    for index, cached in enumerate((4, 8, 3, 8)):  # the second of two found what the first computed
        tally.add(index, Delta("r", finish_reason="length", usage=Usage(5, index, cached)))
    assert tally.usage() == {
        "prompt_tokens": 10,
        "completion_tokens": 6,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 7},
    }


def test_the_best_are_the_likeliest_by_token_and_of_equals_the_first() -> None:
    def answer(name: str, *tokens: int) -> Completion:
        values = tuple(told(token, 0) for token in tokens)
        return Completion(name, "", tokens, "stop", None, Usage(1, len(tokens)), logprobs=values)

    dear, cheap, same = answer("dear", 6), answer("cheap", 0, 7, 14), answer("same", 7)
    assert [own.request_id for own in best([dear, same, cheap], 2)] == ["same", "cheap"]
    assert [own.request_id for own in best([dear, cheap, same], 2)] == ["cheap", "same"]
    assert best([dear, cheap], 2) == [dear, cheap], "all of them: as they were drawn"
