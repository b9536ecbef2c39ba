"""A byte-level fake Tokenizer for tests of other parts: ids 0-255 are bytes, then a few specials. Needs no model."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairstep.errors import InvalidRequest, TemplateError
from fairstep.text.detokenizer import Detokenizer
from fairstep.text.tokenizer import check_text

BOS, EOS, TURN = 256, 257, 258
SPECIALS = {BOS: "<bos>", EOS: "<eos>", TURN: "<turn>"}
VOCAB = 259


class FakePieces:
    """The bytes of each token, as fairstep.text.pieces.Pieces gives them."""

    special = frozenset(SPECIALS)
    strip, strip_most, mark_each_byte = b"", 0, False

    def of(self, token: int, *, skip_special: bool) -> bytes:
        if 0 <= token < BOS:
            return bytes([token])
        return b"" if skip_special else SPECIALS.get(token, "").encode()

    def leading(self, token: int) -> int:
        return 0


class FakeTokenizer:
    """The interface of fairstep.text.tokenizer.Tokenizer; one token a byte, `<bos>` first."""

    vocab_size, bos_id, eos_id = VOCAB, BOS, EOS
    longest_token = 1

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        check_text(text, "prompt")
        return [BOS, *text.encode()] if add_special else list(text.encode())

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return b"".join(FakePieces().of(i, skip_special=skip_special) for i in ids).decode(errors="replace")

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        if not messages:
            raise InvalidRequest("messages must hold at least one message", "messages")
        if continue_final_message and add_generation_prompt:
            raise InvalidRequest("continue_final_message excludes add_generation_prompt", "continue_final_message")
        if "messages" in (template_kwargs or {}):
            raise InvalidRequest("chat_template_kwargs must not set 'messages'", "chat_template_kwargs")
        for message in messages:
            if message["role"] not in ("system", "user", "assistant"):
                raise TemplateError(f"unknown role {message['role']!r}", "messages")
        turns = [f"{name}={value}\n" for name, value in (template_kwargs or {}).items()]
        turns += [f"{message['role']}: {message['content']}\n" for message in messages]
        text = "".join(turns)
        return text[:-1] if continue_final_message else text + ("assistant: " if add_generation_prompt else "")

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **how: Any) -> list[int]:
        text = self.render(messages, **how)
        check_text(text, "messages")
        return self.encode(text)

    def token_bytes(self, token: int) -> bytes:
        return FakePieces().of(token, skip_special=False)

    def token_text(self, token: int) -> str:
        return self.token_bytes(token).decode(errors="replace")

    def bad_word_ids(self, word: str) -> tuple[tuple[int, ...], ...]:
        return (tuple(word.lstrip(" ").encode()),)

    def detokenizer(self, prompt_ids: Sequence[int], *, skip_special: bool = True) -> Detokenizer:
        return Detokenizer(FakePieces(), prompt_ids, skip_special=skip_special)

    def special_id(self, text: str) -> int | None:
        return next((token for token, special in SPECIALS.items() if special == text), None)

    def prepare(self) -> None:
        return None
