"""Answers of POST /v1/chat/completions: a role chunk first, then pieces of `content`."""

from collections.abc import Sequence

from ..request import Completion, Delta
from .writer import Json, Writer


class ChatWriter(Writer):
    """A Writer for chats. With return_token_ids, the prompt's ids stand beside the choices."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> list[Json]:
        delta = {"role": "assistant", "content": ""}
        chunk = self._chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})
        return [{**chunk, **self._prompt_ids()}]

    def piece(self, index: int, delta: Delta) -> Json:
        return {"index": index, "delta": {"content": delta.text} if delta.text else {}}

    def answer(self, index: int, answer: Completion) -> Json:
        return {"index": index, "message": {"role": "assistant", "content": answer.text}}

    def whole(self, answers: Sequence[Completion]) -> Json:
        return {**super().whole(answers), **self._prompt_ids()}

    def _prompt_ids(self) -> Json:
        return {"prompt_token_ids": self.prompts[0]} if self.return_token_ids else {}
