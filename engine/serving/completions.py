"""Answers of POST /v1/completions: choices of each prompt, pieces of `text`, with the prompt before them on demand."""

from collections.abc import Sequence
from itertools import accumulate

from ..request import Completion, Delta
from ..text.tokenizer import Tokenizer
from .ask import Ask
from .logprob_forms import completion_lists, prompt_entries
from .prompt_tokens import PromptTokens
from .spans import Span
from .writer import Json, Writer


class TextWriter(Writer):
    """A Writer for completions. What is told of a prompt stands in its choices (in a stream: in their first chunks)."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: str, ask: Ask, prompts: Sequence[PromptTokens], tokenizer: Tokenizer) -> None:
        super().__init__(model, ask, prompts, tokenizer)
        self._waiting: dict[int, list[tuple[int, Delta]]] = {}  # by prompt
        self._of_prompts: dict[int, Json] = {}  # its choices share the lists

    def opening(self, index: int) -> list[Json]:
        return []

    def due(self, index: int, delta: Delta) -> list[tuple[int, Delta]]:
        """An echo with log probabilities waits for those of the prompt, which come with its first answer."""
        if not self._echoes_logprobs:
            return [(index, delta)]
        waiting = self._waiting.setdefault(index // self.ask.samples, [])
        waiting.append((index, delta))
        if index // self.ask.samples not in self.prompt_logprobs:
            return []
        due = waiting.copy()
        waiting.clear()
        return due

    def piece(self, index: int, delta: Delta) -> Json:
        if self.is_open(index):
            return {"index": index, "text": delta.text}
        return {"index": index, "text": self._echo(index) + delta.text, **self._prompt_ids(index)}

    def answer(self, index: int, answer: Completion) -> Json:
        choice = {"index": index, "text": self._echo(index) + answer.text, **self._prompt_ids(index)}
        if self.ask.prompt_tops is not None:
            items = self.prompt_logprobs[index // self.ask.choices]
            choice["prompt_logprobs"] = prompt_entries(self.names, items, self.ask.prompt_tops)
        return choice

    def logprobs(self, index: int, part: Delta | Completion) -> Json | None:
        if self.ask.tops is None:
            return None
        spans, items = self.spans(index).take(part), part.logprobs
        told = completion_lists(self.names, spans, items, self.ask.tops)
        if self._echoes_logprobs and not self.is_open(index):
            of_prompt = self._prompt_lists(index // self.ask.choices)
            told = {name: of_prompt[name] + told[name] for name in told}
        return told if told["tokens"] or isinstance(part, Completion) else None

    @property
    def _echoes_logprobs(self) -> bool:
        return self.ask.echo and self.ask.tops is not None

    def _prompt_lists(self, prompt: int) -> Json:
        """Log probabilities of a prompt's own tokens."""
        assert self.ask.tops is not None
        if prompt not in self._of_prompts:
            texts, items = self.prompts[prompt].texts, self.prompt_logprobs[prompt]
            offsets = accumulate(map(len, texts), initial=0)
            spans = [Span(offset, text) for offset, text in zip(offsets, texts, strict=False)]
            self._of_prompts[prompt] = completion_lists(self.names, spans, items, self.ask.tops)
        return self._of_prompts[prompt]

    def _echo(self, index: int) -> str:
        return self.prompt_of(index).text

    def _prompt_ids(self, index: int) -> Json:
        return {"prompt_token_ids": self.prompt_of(index).ids} if self.ask.return_token_ids else {}
