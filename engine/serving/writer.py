"""An answer in the protocol's shape: chunks of a stream, or the whole. Knows no transport; chat.py and completions.py
fill in what differs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import uuid4

from ..clock import wall_time
from ..request import Completion, Delta

Json = dict[str, Any]


class Tally:
    """Token counts of one reply: prompts once each, outputs of all of them."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt = prompt_tokens
        self._outputs: dict[int, int] = {}
        self._cached = 0

    def add(self, index: int, delta: Delta) -> None:
        """Count what a delta brings; its `usage`, when it comes, is what holds."""
        self._outputs[index] = self._outputs.get(index, 0) + len(delta.token_ids)
        if delta.usage is not None:
            self._outputs[index] = delta.usage.completion_tokens
            self._cached += delta.usage.cached_tokens

    def usage(self) -> Json:
        outputs = sum(self._outputs.values())
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": outputs,
            "total_tokens": self._prompt + outputs,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }


class Writer(ABC):
    """Writes one reply. `prompts` are the token ids of its prompts; choice i answers prompt i."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(
        self, model: str, prompts: Sequence[tuple[int, ...]], *, return_token_ids: bool, continuous_usage: bool
    ) -> None:
        self.id = f"{self.id_prefix}-{uuid4().hex}"
        self.prompts = prompts
        self.return_token_ids = return_token_ids
        self.tally = Tally(sum(map(len, prompts)))
        self._continuous_usage = continuous_usage
        self._model = model
        self._created = wall_time()
        self._opened: set[int] = set()

    def chunks(self, index: int, delta: Delta) -> list[Json]:
        """What to send for a delta of choice `index`: one finish chunk a choice; nothing for one without content."""
        self.tally.add(index, delta)
        chunks = []
        if index not in self._opened:
            chunks += self.opening(index)
        if delta.text or delta.finish_reason or (self.return_token_ids and delta.token_ids):
            chunks.append(self._chunk(self._ending(self.piece(index, delta), delta)))
        self._opened.add(index)
        return chunks

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its token counts."""
        return {**self._head(self.chunk_object), "choices": [], "usage": self.tally.usage()}

    def whole(self, answers: Sequence[Completion]) -> Json:
        """The reply of a request without a stream; the tally must have seen every delta."""
        choices = [self._ending(self.answer(index, answer), answer) for index, answer in enumerate(answers)]
        return {**self._head(self.whole_object), "choices": choices, "usage": self.tally.usage()}

    @abstractmethod
    def opening(self, index: int) -> list[Json]:
        """Chunks before a choice's first content."""

    @abstractmethod
    def piece(self, index: int, delta: Delta) -> Json:
        """A choice of a chunk, without its end."""

    @abstractmethod
    def answer(self, index: int, answer: Completion) -> Json:
        """A choice of a whole reply, without its end."""

    def is_open(self, index: int) -> bool:
        """Whether something was written for this choice already."""
        return index in self._opened

    def _ending(self, choice: Json, part: Delta | Completion) -> Json:
        choice |= {"logprobs": None, "finish_reason": part.finish_reason}
        if part.finish_reason is not None:
            choice["stop_reason"] = part.stop_reason
        if self.return_token_ids:
            choice["token_ids"] = part.token_ids
        return choice

    def _chunk(self, choice: Json) -> Json:
        chunk = {**self._head(self.chunk_object), "choices": [choice]}
        if self._continuous_usage:
            chunk["usage"] = self.tally.usage()
        return chunk

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self._created, "model": self._model}
