"""What one line asks and what is written for it, on a fake engine."""

import json
from typing import Any

import pytest

from fairstep.errors import EngineDead
from fairstep.serving.generate_line import Line, LineAnswerer, LineOptions
from fakes_serving import CONTEXT, FakeEngine, run

OPTIONS = LineOptions(max_tokens=20)
COUNTED: list[int] = []


def record(
    line: bytes | dict[str, Any], options: LineOptions = OPTIONS, engine: FakeEngine | None = None, index: int = 0
) -> dict[str, Any]:
    """The record of one line."""
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    found: list[dict[str, Any]] = []

    async def answer() -> None:
        answerer = LineAnswerer(engine or FakeEngine(), options, COUNTED.append)  # type: ignore[arg-type]
        found.append(await answerer.record(Line(index, raw, "f00d")))

    run(answer)
    return found[0]


def asked(line: dict[str, Any], options: LineOptions = OPTIONS, index: int = 0) -> Any:
    """The sampling parameters that reach the engine."""
    engine = FakeEngine()
    assert "error" not in record(line, options, engine, index)
    return engine.asked[0].params


def test_a_prompt_is_answered() -> None:
    assert record({"prompt": "hi"}, index=7) == {
        "index": 7,
        "text": "Hello wörld",
        "finish_reason": "stop",
        "stop_reason": None,
        "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6},
        "made_from": "f00d",
    }


def test_a_conversation_is_answered_through_the_template() -> None:
    engine = FakeEngine()
    assert record({"messages": [{"role": "user", "content": "hi"}]}, engine=engine)["text"] == "Hello wörld"
    assert engine.tokenizer.decode(engine.asked[0].prompt_ids) == "user: hi\nassistant: "


@pytest.mark.parametrize("name", ["a7", 7, ["a", 7]])
def test_an_id_is_carried_over_also_to_an_error(name: Any) -> None:
    assert record({"id": name, "prompt": "hi"})["id"] == name
    assert record({"id": name})["id"] == name
    assert "id" not in record({"prompt": "hi"})


@pytest.mark.parametrize(
    ("line", "param", "said"),
    [
        (b"nonsense", None, "the line is not valid JSON"),
        (b'"text"', None, "the line must be a JSON object"),
        (b"\xff", None, "the line is not UTF-8"),
        ({}, "prompt", "either prompt or messages"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "prompt", "either prompt or messages"),
        ({"prompt": ["a", "b"]}, "prompt", "at most 1"),
        ({"prompt": "a", "n": 2}, "n", "at most 1"),
        ({"prompt": "a", "best_of": 2}, "best_of", "at most 1"),
        ({"prompt": "a", "deadline_ms": 5}, "deadline_ms", "no deadline"),
        ({"prompt": "a", "temperature": -1}, "temperature", "must be in"),
        ({"prompt": "a", "max_tokens": CONTEXT}, "max_tokens", "exceed the context"),
        ({"prompt": "a" * CONTEXT}, "prompt", "the prompt has"),
        ({"messages": [{"role": "user", "content": "b" * CONTEXT}]}, "messages", "the prompt has"),
        ({"messages": []}, "messages", "at least one message"),
    ],
)
def test_a_wrong_line_becomes_an_error_of_its_own(line: Any, param: str | None, said: str) -> None:
    made = record(line)
    assert set(made) == {"index", "error", "made_from"}
    assert made["error"]["param"] == param
    assert said in made["error"]["message"]


def test_options_hold_where_the_line_says_nothing() -> None:
    options = LineOptions(max_tokens=9, fields={"temperature": 0.5, "top_k": 3})
    params = asked({"prompt": "a", "temperature": 0, "top_k": None}, options)
    assert (params.temperature, params.top_k, params.max_tokens) == (0, 3, 9)


def test_the_option_for_the_length_stops_at_the_end_of_the_context() -> None:
    assert asked({"prompt": "a" * 150}, LineOptions(max_tokens=100)).max_tokens == CONTEXT - 151
    assert asked({"prompt": "a", "max_tokens": 3}).max_tokens == 3
    chat = {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 4}
    assert asked(chat).max_tokens == 4


def test_each_line_has_a_seed_of_its_own_that_a_later_run_finds_again() -> None:
    options = LineOptions(max_tokens=9, seed=1)
    seeds = [asked({"prompt": "a"}, options, index).seed for index in range(50)]
    assert len(set(seeds)) == 50
    assert seeds == [asked({"prompt": "b"}, options, index).seed for index in range(50)]
    assert asked({"prompt": "a", "seed": 5}, options).seed == 5
    assert asked({"prompt": "a"}).seed is None


def test_the_fingerprint_changes_with_line_model_and_options() -> None:
    prints = {
        OPTIONS.fingerprint("m", b"a"),
        OPTIONS.fingerprint("m", b"b"),
        OPTIONS.fingerprint("n", b"a"),
        LineOptions(max_tokens=21).fingerprint("m", b"a"),
        LineOptions(max_tokens=20, seed=1).fingerprint("m", b"a"),
        LineOptions(max_tokens=20, fields={"top_k": 1}).fingerprint("m", b"a"),
    }
    assert len(prints) == 6
    assert OPTIONS.fingerprint("m", b"a") == LineOptions(max_tokens=20).fingerprint("m", b"a")


def test_what_was_asked_for_is_told() -> None:
    made = record({"prompt": "hi", "return_token_ids": True})
    assert len(made["token_ids"]) == 3
    assert len(made["prompt_token_ids"]) == 3


def test_tokens_are_counted_as_they_come() -> None:
    COUNTED.clear()
    record({"prompt": "hi"})
    assert sum(COUNTED) == 3


def test_an_answer_that_fails_is_the_lines_error() -> None:
    made = record({"prompt": "hi"}, engine=FakeEngine(ending="error"))
    assert made["error"]["message"] == "the request failed"


def test_a_bug_of_ours_ends_one_line_only_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.bug = KeyError("a bug")
    made = record({"prompt": "hi"}, engine=engine, index=3)
    assert made["error"]["code"] == "internal_error"
    assert "line 3 failed" in caplog.text


def test_an_engine_that_has_died_is_no_lines_error() -> None:
    engine = FakeEngine()
    engine.failure = "the worker ended"
    with pytest.raises(EngineDead):
        record({"prompt": "hi"}, engine=engine)
