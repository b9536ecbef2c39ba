"""Answers of POST /v1/completions: one choice a prompt, pieces of `text`."""

from ..request import Completion, Delta
from .writer import Json, Writer


class TextWriter(Writer):
    """A Writer for completions. With return_token_ids, a prompt's ids stand in its choice (in a stream: once)."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def opening(self, index: int) -> list[Json]:
        return []

    def piece(self, index: int, delta: Delta) -> Json:
        choice = {"index": index, "text": delta.text}
        return choice if self.is_open(index) else {**choice, **self._prompt_ids(index)}

    def answer(self, index: int, answer: Completion) -> Json:
        return {"index": index, "text": answer.text, **self._prompt_ids(index)}

    def _prompt_ids(self, index: int) -> Json:
        return {"prompt_token_ids": self.prompts[index]} if self.return_token_ids else {}
