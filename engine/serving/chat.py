"""Answers of POST /v1/chat/completions: a role chunk first, then pieces of `content`."""

from collections.abc import Sequence

from ..request import Completion, Delta
from .logprob_forms import chat_entries, prompt_entries
from .writer import Json, Writer


class ChatWriter(Writer):
    """A Writer for chats. What is told of the prompt stands beside the choices (in a stream: once)."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> list[Json]:
        delta = {"role": "assistant", "content": ""}
        chunk = self._chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})
        return [chunk if self.is_begun else {**chunk, **self._prompt_ids()}]

    def piece(self, index: int, delta: Delta) -> Json:
        return {"index": index, "delta": {"content": delta.text} if delta.text else {}}

    def answer(self, index: int, answer: Completion) -> Json:
        return {"index": index, "message": {"role": "assistant", "content": answer.text}}

    def logprobs(self, index: int, part: Delta | Completion) -> Json | None:
        if self.ask.tops is None:
            return None
        entries = chat_entries(self.names, self.spans(index).take(part), part.logprobs, self.ask.tops)
        return {"content": entries} if entries or isinstance(part, Completion) else None

    def whole(self, answers: Sequence[Completion]) -> Json:
        reply = {**super().whole(answers), **self._prompt_ids()}
        if self.ask.prompt_tops is not None:
            reply["prompt_logprobs"] = prompt_entries(self.names, self.prompt_logprobs[0], self.ask.prompt_tops)
        return reply

    def _prompt_ids(self) -> Json:
        return {"prompt_token_ids": self.prompts[0].ids} if self.ask.return_token_ids else {}
