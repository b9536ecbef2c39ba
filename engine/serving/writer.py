"""An answer in the protocol's shape: chunks of a stream, or the whole. Knows no transport; chat.py and completions.py
fill in what differs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import uuid4

from ..clock import wall_time
from ..door import TokenLogprobs
from ..request import Completion, Delta
from ..text.tokenizer import Tokenizer
from .ask import Ask
from .logprob_forms import TokenNames, mean_logprob
from .prompt_tokens import PromptTokens
from .spans import Spans
from .sse import around, event, json_text

Json = dict[str, Any]
PromptLogprobs = tuple[TokenLogprobs | None, ...]
MARK = "\0the text\0"  # that no model, name or id has


class Tally:
    """Token counts of one reply: prompts once each, outputs of all answers. Every `samples` answers share a prompt."""

    def __init__(self, prompt_tokens: int, samples: int) -> None:
        self._prompt = prompt_tokens
        self._samples = samples
        self._outputs: dict[int, int] = {}
        self._cached = 0

    def add(self, index: int, delta: Delta) -> None:
        """Count what a delta brings; its `usage`, when it comes, is what holds."""
        self._outputs[index] = self._outputs.get(index, 0) + len(delta.token_ids)
        if delta.usage is not None:
            self._outputs[index] = delta.usage.completion_tokens
            if index % self._samples == 0:  # the others found the prompt that this one computed
                self._cached += delta.usage.cached_tokens

    @property
    def outputs(self) -> int:
        return sum(self._outputs.values())

    def usage(self) -> Json:
        outputs = self.outputs
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": outputs,
            "total_tokens": self._prompt + outputs,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }


class Writer(ABC):
    """Writes one reply. Choice i answers prompt i // ask.choices; sample i, as the engine tells them, i // ask.samples.

    In a stream there are as many choices as samples.
    """

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, model: str, ask: Ask, prompts: Sequence[PromptTokens], tokenizer: Tokenizer) -> None:
        self.id = f"{self.id_prefix}-{uuid4().hex}"
        self.ask = ask
        self.prompts = prompts
        self.names = TokenNames(tokenizer, skip_special=ask.params.skip_special_tokens)
        self.tally = Tally(sum(len(prompt.ids) for prompt in prompts), ask.samples)
        self.prompt_logprobs: dict[int, PromptLogprobs] = {}  # by prompt; they come with its first answer
        self._tokenizer = tokenizer
        self._model = model
        self.created = wall_time()
        self._opened: set[int] = set()
        self._spans: dict[int, Spans] = {}
        self._frames: dict[int, tuple[bytes, bytes]] = {}  # what stands around a choice's text in its events

    def chunks(self, index: int, delta: Delta) -> list[Json]:
        """What to send for a delta of choice `index`: one finish chunk a choice; nothing for one without content."""
        self.tally.add(index, delta)
        if delta.prompt_logprobs:
            self.prompt_logprobs[index // self.ask.samples] = delta.prompt_logprobs
        return [chunk for place, part in self.due(index, delta) for chunk in self._chunks(place, part)]

    def events(self, index: int, delta: Delta) -> bytes:
        """The same as events, those of a piece of text alone in short: nearly all are such."""
        frame = self._frames.get(index)
        if frame is None or delta.finish_reason is not None or delta.prompt_logprobs:
            data = b"".join(map(event, self.chunks(index, delta)))
            if self.is_open(index) and not self._tells_more:
                piece = Delta(delta.request_id, MARK)
                self._frames[index] = around(self._chunk(self._ending(self.piece(index, piece), index, piece)), MARK)
            return data
        self.tally.add(index, delta)
        before, after = frame
        return before + json_text(delta.text) + after if delta.text else b""

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its token counts."""
        return {**self._head(self.chunk_object), "choices": [], "usage": self.tally.usage()}

    def whole(self, answers: Sequence[Completion]) -> Json:
        """The reply of a request without a stream, from all samples; the tally must have seen every delta."""
        samples = self.ask.samples
        groups = [answers[start : start + samples] for start in range(0, len(answers), samples)]
        told = [answer for group in groups for answer in best(group, self.ask.choices)]
        self.prompt_logprobs = {place: group[0].prompt_logprobs for place, group in enumerate(groups)}
        choices = [self._ending(self.answer(index, answer), index, answer) for index, answer in enumerate(told)]
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

    @abstractmethod
    def logprobs(self, index: int, part: Delta | Completion) -> Json | None:
        """Log probabilities of a choice's part, if asked for; None in a chunk that brings none."""

    def due(self, index: int, delta: Delta) -> list[tuple[int, Delta]]:
        """What to write now that a delta has come."""
        return [(index, delta)]

    def prompt_of(self, index: int) -> PromptTokens:
        """The prompt of a choice."""
        return self.prompts[index // self.ask.choices]

    def is_open(self, index: int) -> bool:
        """Whether something was written for this choice already."""
        return index in self._opened

    @property
    def is_begun(self) -> bool:
        """Whether anything was written already."""
        return bool(self._opened)

    def spans(self, index: int) -> Spans:
        """The texts of a choice's tokens."""
        if index not in self._spans:
            prompt, params = self.prompt_of(index), self.ask.params
            detokenizer = self._tokenizer.detokenizer(prompt.ids, skip_special=params.skip_special_tokens)
            self._spans[index] = Spans(detokenizer, len(prompt.text), shows_stop=params.include_stop)
        return self._spans[index]

    @property
    def _tells_more(self) -> bool:
        """Whether chunks have more of a piece than its text."""
        return self.ask.return_token_ids or self.ask.tops is not None or self.ask.continuous_usage

    def _chunks(self, index: int, delta: Delta) -> list[Json]:
        tells_tokens = self.ask.return_token_ids or self.ask.tops is not None
        chunks = [] if self.is_open(index) else self.opening(index)
        if delta.text or delta.finish_reason or (tells_tokens and delta.token_ids):
            chunks.append(self._chunk(self._ending(self.piece(index, delta), index, delta)))
        if chunks:
            self._opened.add(index)
        return chunks

    def _ending(self, choice: Json, index: int, part: Delta | Completion) -> Json:
        choice |= {"logprobs": self.logprobs(index, part), "finish_reason": part.finish_reason}
        if part.finish_reason is not None:
            choice["stop_reason"] = part.stop_reason
        if self.ask.return_token_ids:
            choice["token_ids"] = part.token_ids
        return choice

    def _chunk(self, choice: Json) -> Json:
        chunk = {**self._head(self.chunk_object), "choices": [choice]}
        if self.ask.continuous_usage:
            chunk["usage"] = self.tally.usage()
        return chunk

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self._model}


def best(answers: Sequence[Completion], choices: int) -> Sequence[Completion]:
    """The likeliest by log probability a token, likeliest first, of equals the first drawn; all of them as drawn."""
    if choices == len(answers):
        return answers
    return sorted(answers, key=mean_logprob, reverse=True)[:choices]  # sorted keeps the order of equals
