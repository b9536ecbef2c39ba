"""A response of /v1/responses as its events tell it, numbered from 0, and as one object. Knows no engine and no store.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..request import Delta
from .ask import Ask
from .replies import failure_of
from .response_body import ResponseBody
from .writer import Json, Tally

DELTA = "response.output_text.delta"
ENDS = {"completed", "incomplete", "failed", "cancelled"}


@dataclass(frozen=True, slots=True)
class Told:
    """What has been told of a response so far: its events, its text, and the ids of its tokens."""

    events: int = 0
    text: str = ""
    drawn: tuple[int, ...] = ()


class ResponseWriter:
    """Writes one response; each call gives the events that it adds.

    told: by an earlier life of the server; what the engine tells of that again is left out.
    """

    def __init__(self, response_id: str, model: str, body: ResponseBody, ask: Ask, created: int, told: Told) -> None:
        self.id = response_id
        self.status = "queued" if body.background else "in_progress"
        self.text = told.text
        self._model = model
        self._body = body
        self._ask = ask
        self._created = created
        self._number = told.events
        self._opened = bool(told.text)
        self._again = len(told.text)  # characters that the engine tells again
        self._usage: Json | None = None
        self._error: Json | None = None
        self._item = f"msg_{response_id.removeprefix('resp_')}"

    def begin(self) -> list[Json]:
        """It was accepted."""
        kind = "response.queued" if self._body.background else "response.in_progress"
        return [self._event("response.created", response=self.whole()), self._event(kind, response=self.whole())]

    def add(self, delta: Delta) -> list[Json]:
        """A part of the answer has come."""
        new = delta.text[self._again :]
        self._again -= len(delta.text) - len(new)
        if not new:
            return []
        opening = [] if self._opened else self._open()
        self.text += new
        return [*opening, self._event(DELTA, **self._place(), delta=new, logprobs=[])]

    def end(self, finish_reason: str, tally: Tally) -> list[Json]:
        """The answer has come to its end."""
        opening = [] if self._opened else self._open()
        self.status = "completed" if finish_reason == "stop" else "incomplete"
        self._usage = _usage(tally.usage())
        part = self._part()
        return [
            *opening,
            self._event("response.output_text.done", **self._place(), text=self.text, logprobs=[]),
            self._event("response.content_part.done", **self._place(), part=part),
            self._event("response.output_item.done", output_index=0, item=self._message()),
            self._event(f"response.{self.status}", response=self.whole()),
        ]

    def fail(self, error: Exception) -> list[Json]:
        """It comes to no end."""
        failure = failure_of(error)
        self.status, self._error = "failed", {"code": failure.code, "message": failure.body()["error"]["message"]}
        return [self._event("response.failed", response=self.whole())]

    def cancel(self) -> list[Json]:
        """Its client wants no more of it."""
        self.status = "cancelled"
        return [self._event("response.cancelled", response=self.whole())]

    def whole(self) -> Json:
        """The response as it is now."""
        body, params = self._body, self._ask.params
        has_output = self.status in ENDS and self._opened
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": self.status,
            "background": bool(body.background),
            "error": self._error,
            "incomplete_details": {"reason": "max_output_tokens"} if self.status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._model,
            "output": [self._message()] if has_output else [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": body.is_stored,
            "temperature": params.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": self._usage,
        }

    def _open(self) -> list[Json]:
        self._opened = True
        begun = []
        if self.status == "queued":
            self.status = "in_progress"
            begun.append(self._event("response.in_progress", response=self.whole()))
        message = {**self._message(), "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [
            *begun,
            self._event("response.output_item.added", output_index=0, item=message),
            self._event("response.content_part.added", **self._place(), part=part),
        ]

    def _event(self, kind: str, **fields: Any) -> Json:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event

    def _place(self) -> Json:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _part(self) -> Json:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def _message(self) -> Json:
        status = "completed" if self.status == "completed" else "incomplete"
        return {"id": self._item, "type": "message", "status": status, "role": "assistant", "content": [self._part()]}


def text_of(events: Sequence[Mapping[str, Any]]) -> str:
    """The text that events have told."""
    return "".join(event["delta"] for event in events if event["type"] == DELTA)


def _usage(usage: Json) -> Json:
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
