"""One line of `fairstep generate`: what it asks, checked as the HTTP API checks a body, and the answer's record.

Knows no files. What is wrong with a line becomes its record; only an engine that cannot serve is raised.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ..admission.fit import answer_room
from ..errors import EngineClosed, EngineDead, FairstepError, InvalidRequest
from ..request import Completion, SamplingParams
from .ask import Ask, chat_ask, completion_ask, named_as_sent
from .body import parse_object
from .chat import ChatWriter
from .completions import TextWriter
from .generate_output import FIRST_KEY
from .limits import Limits
from .messages import Conversation
from .prompt_tokens import tokenize
from .replies import failure_of
from .seeds import mixed_seed

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

ONE_ANSWER = Limits(prompts=1, samples=1)
ASKED_FOR = ("logprobs", "token_ids", "prompt_token_ids", "prompt_logprobs")
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")  # not the cached ones: those differ from run to run
FINGERPRINT_BYTES = 8

Record = dict[str, Any]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """What holds for lines that say nothing of it: `fields` by the API's names, max_tokens as far as the context goes.

    seed: mixed with the line's index, so that lines differ and a run can be repeated from any line.
    """

    max_tokens: int
    seed: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def seed_of(self, index: int) -> int | None:
        """The seed of a line without one of its own."""
        return None if self.seed is None else mixed_seed(self.seed, index)

    def fingerprint(self, model: str, line: bytes) -> str:
        """Hexadecimal digits that change with the line, the model or an option."""
        made_of = [model, self.max_tokens, self.seed, dict(self.fields), line]
        return hashlib.blake2b(msgspec.json.encode(made_of), digest_size=FINGERPRINT_BYTES).hexdigest()


@dataclass(slots=True)
class Line:
    """One input line: `raw` without its end, `index` among the lines, `made_from` its fingerprint."""

    index: int
    raw: bytes
    made_from: str
    id: Any = None

    def record(self, answer: Mapping[str, Any]) -> Record:
        """What is written for this line."""
        named = {} if self.id is None else {"id": self.id}
        return {FIRST_KEY: self.index, **named, **answer, "made_from": self.made_from}


class LineAnswerer:
    """Answers lines on one engine. on_tokens hears how many tokens came."""

    def __init__(self, engine: "AsyncEngine", options: LineOptions, on_tokens: Callable[[int], None]) -> None:
        self._engine = engine
        self._options = options
        self._on_tokens = on_tokens

    async def record(self, line: Line) -> Record:
        """The line's answer or its error. Raises EngineClosed or EngineDead."""
        try:
            return line.record(_answer(await self._reply(line)))
        except (EngineClosed, EngineDead):
            raise
        except Exception as error:
            if not isinstance(error, FairstepError):  # a bug of ours must not end the lines after it
                log.exception("line %d failed", line.index)
            return line.record(failure_of(error).body())

    async def _reply(self, line: Line) -> Record:
        """The reply of the HTTP API to what the line asks."""
        ask = self._ask(line)
        with named_as_sent(ask.field_names):
            [prompt] = await tokenize(self._engine, ask)
            params = self._params(ask, len(prompt.ids))
            stream = self._engine.submit(prompt.ids, params, priority=ask.priority, request_id=f"line-{line.index}")
        kind = ChatWriter if isinstance(ask.prompts[0], Conversation) else TextWriter
        writer = kind(self._engine.model_name, ask, [prompt], self._engine.tokenizer)
        deltas = []
        async with aclosing(stream):
            async for delta in stream:
                self._on_tokens(len(delta.token_ids))
                writer.tally.add(0, delta)
                deltas.append(delta)
        answer = Completion.join(deltas)
        if answer.finish_reason == "error":
            self._engine.check_alive()
            raise FairstepError(answer.error or "the request failed")
        return writer.whole([answer])

    def _ask(self, line: Line) -> Ask:
        fields = _fields(line.raw)
        line.id = fields.pop("id", None)
        defaults = {**self._options.fields, "seed": self._options.seed_of(line.index)}
        fields |= {name: value for name, value in defaults.items() if fields.get(name) is None}
        asked = [name for name in ("prompt", "messages") if fields.get(name) is not None]
        if len(asked) != 1:
            raise InvalidRequest("a line must have either prompt or messages", "prompt")
        ask = chat_ask(fields, ONE_ANSWER) if asked == ["messages"] else completion_ask(fields, ONE_ANSWER)
        if ask.deadline_ms is not None or ask.ttft_deadline_ms is not None:
            raise InvalidRequest("a line has no deadline: it waits for its turn", "deadline_ms")
        return replace(ask, default_max_tokens=self._options.max_tokens)

    def _params(self, ask: Ask, prompt_tokens: int) -> SamplingParams:
        if ask.params.max_tokens is not None:
            return ask.params
        room = answer_room(prompt_tokens, None, self._engine.info.context)
        return replace(ask.params, max_tokens=min(self._options.max_tokens, room))


def _fields(raw: bytes) -> Record:
    try:
        return parse_object(raw)
    except InvalidRequest as problem:
        raise InvalidRequest(str(problem).replace("the body", "the line", 1), problem.param) from None


def _answer(reply: Record) -> Record:
    """The one choice of a reply in flat form; what is there only when asked for stays out when it is not there."""
    [choice] = reply["choices"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    asked_for = {name: choice.get(name, reply.get(name)) for name in ASKED_FOR}
    return {
        "text": text,
        "finish_reason": choice["finish_reason"],
        "stop_reason": choice["stop_reason"],
        **{name: value for name, value in asked_for.items() if value is not None},
        "usage": {name: reply["usage"][name] for name in COUNTS},
    }
