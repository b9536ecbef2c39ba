"""Text to token ids and back, and chats to ids, over whatever codec a model's files give.

Front side: no torch. Safe to call from several threads at once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest, ModelError
from ..model.gguf_header import read_gguf_header
from ..model.sources import resolve
from .codec import Codec
from .detokenizer import Detokenizer
from .fast_codec import FastCodec
from .gguf_tokenizer import build_tokenizer, special_tokens
from .template import ChatTemplate
from .tokenizer_directory import read_directory


class Tokenizer:
    """One model's tokenizer and chat template. `named` maps bos_token, eos_token... to their texts.

    longest_token: no token stands for more characters of a text.
    """

    def __init__(self, codec: Codec, named: Mapping[str, str], chat_template: str | None) -> None:
        self._codec = codec
        self._pieces = codec.pieces
        self._template = ChatTemplate(chat_template, named)
        self.vocab_size = codec.size
        self.longest_token = codec.longest
        self.bos_id = self._id(named.get("bos_token"))
        self.eos_id = self._id(named.get("eos_token"))
        self._adds_bos = self.bos_id is not None and self.encode("")[:1] == [self.bos_id]

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids, with BOS (and EOS) before (and after) if the model's tokenizer adds them and add_special is set.

        Special tokens that are written out in the text become special tokens; a text that begins with a
        written BOS gets a second one, as from the model's own tokenizer: pass add_special=False for such.
        The work is done without the GIL. Raises InvalidRequest on a lone surrogate.
        """
        return self._encode(text, add_special, "prompt")

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of ids. Undecodable bytes become U+FFFD; ids outside the vocabulary have no text."""
        whole = self.detokenizer((), skip_special=skip_special)
        return whole.push(ids) + whole.finish()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The messages as one prompt text, as ChatTemplate.render; raises what that raises."""
        return self._template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=template_kwargs,
        )

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **how: Any) -> list[int]:
        """Token ids of a chat; `how` is that of render.

        They begin with exactly one BOS if the template writes one or the tokenizer adds one.
        """
        ids = self._encode(self.render(messages, **how), False, "messages")
        if self._adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; a special token's are its text; none outside the vocabulary."""
        return self._pieces.of(token, skip_special=False)

    def token_text(self, token: int) -> str:
        """A token's bytes as text, U+FFFD for those that are no characters by themselves."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def bad_word_ids(self, word: str) -> tuple[tuple[int, ...], ...]:
        """Every spelling of a word in tokens: at the beginning of a text, after a space, within a line or a word.

        Of two spellings where one is the other's end, only the shorter is given: it forbids both. Spaces before the
        word don't count. Raises InvalidRequest for a word without text.
        """
        bare = word.lstrip(" ")
        if not bare:
            raise InvalidRequest("bad_words must not hold an empty word", "bad_words")
        places = [("", bare), ("", " " + bare), ("a", " " + bare), ("\n", bare)]
        spellings = {self._follow(before, text) for before, text in places}
        kept: list[tuple[int, ...]] = []
        for spelling in sorted(spellings - {()}, key=lambda ids: (len(ids), ids)):
            if not any(spelling[-len(shorter) :] == shorter for shorter in kept):
                kept.append(spelling)
        return tuple(kept)

    def detokenizer(self, prompt_ids: Sequence[int], *, skip_special: bool = True) -> Detokenizer:
        """A new stream of text that follows `prompt_ids`."""
        return Detokenizer(self._pieces, prompt_ids, skip_special=skip_special)

    def special_id(self, text: str) -> int | None:
        """The id of a special token by its text, else None: as a stop string such a text could never be seen."""
        token = self._id(text)
        return token if token in self._pieces.special else None

    def prepare(self) -> None:
        """Import and compile what the first chat needs, most of a second; for a thread at start."""
        self._template.prepare()

    def _encode(self, text: str, add_special: bool, param: str) -> list[int]:
        check_text(text, param)
        return self._codec.encode(text, add_special=add_special)

    def _follow(self, before: str, text: str) -> tuple[int, ...]:
        """The ids of a text that follows another; none if they share a token."""
        start = self._encode(before, False, "bad_words")
        ids = self._encode(before + text, False, "bad_words")
        return tuple(ids[len(start) :]) if ids[: len(start)] == start else ()

    def _id(self, text: str | None) -> int | None:
        return None if text is None else self._codec.id_of(text)


def check_text(text: str, param: str) -> None:
    """Refuse text that cannot be written as UTF-8. Raises InvalidRequest naming the field."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half, place = text[error.start], error.start
        raise InvalidRequest(
            f"{param} holds half a character (a lone surrogate, {half!a}) at {place}", param
        ) from error


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of an alias, a directory, a .gguf file or a hub id. Raises ModelError naming the file."""
    source = resolve(model)
    return _from_gguf(source.path) if source.kind == "gguf" else _from_directory(source.path)


def _from_gguf(path: Path) -> Tokenizer:
    metadata = read_gguf_header(path).metadata
    try:
        codec = FastCodec(build_tokenizer(metadata))
        return Tokenizer(codec, special_tokens(metadata), metadata.get("tokenizer.chat_template"))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except Exception as error:  # tokenizers raises a bare Exception
        raise ModelError(f"{path}: no tokenizer can be built from its metadata: {_first_line(error)}") from error


def _from_directory(path: Path) -> Tokenizer:
    try:
        return Tokenizer(*read_directory(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except Exception as error:  # transformers and its converters raise many kinds
        raise ModelError(f"{path}: the tokenizer cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
