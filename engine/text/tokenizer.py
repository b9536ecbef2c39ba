"""Text to token ids and back, and chats to ids. Front side: no torch. Safe to call from several threads at once.

A GGUF file's tokenizer is built from its metadata; a directory's is read by transformers.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from ..errors import InvalidRequest, ModelError
from ..model.gguf_header import read_gguf_header
from ..model.sources import resolve
from .detokenizer import Detokenizer
from .gguf_tokenizer import build_tokenizer, special_tokens
from .pieces import Pieces
from .template import ChatTemplate

NORMALIZED = 4  # no normalizer in use makes a text shorter than a quarter


class Tokenizer:
    """One model's tokenizer and chat template. `named` maps bos_token, eos_token... to their texts.

    longest_token: no token stands for more characters of a text.
    """

    def __init__(self, backend: Backend, named: Mapping[str, str], chat_template: str | None) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._pieces = Pieces(backend)
        self._template = ChatTemplate(chat_template, named)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        # in characters; where a normalizer may shorten texts, a text can be longer than its tokens
        longest = max(map(len, backend.get_vocab()))
        self.longest_token = longest if backend.normalizer is None else NORMALIZED * longest
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

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The messages as one prompt text. Raises TemplateError, or InvalidRequest for a wrong shape."""
        return self._template.render(messages, add_generation_prompt=add_generation_prompt)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a chat. It begins with exactly one BOS if the template writes one or the tokenizer adds one."""
        text = self.render(messages, add_generation_prompt=add_generation_prompt)
        ids = self._encode(text, False, "messages")
        if self._adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

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
        # of the backend's methods only the batched ones release the GIL
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=add_special)[0].ids
        return ids

    def _id(self, text: str | None) -> int | None:
        return None if text is None else self._backend.token_to_id(text)


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
    """The tokenizer of an alias, a directory, a .gguf file or a hub id. Raises ModelError."""
    source = resolve(model)
    return _from_gguf(source.path) if source.kind == "gguf" else _from_directory(source.path)


def _from_gguf(path: Path) -> Tokenizer:
    metadata = read_gguf_header(path).metadata
    try:
        return Tokenizer(build_tokenizer(metadata), special_tokens(metadata), metadata.get("tokenizer.chat_template"))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except Exception as error:  # tokenizers raises a bare Exception
        raise ModelError(f"{path}: no tokenizer can be built from its metadata: {_first_line(error)}") from error


def _from_directory(path: Path) -> Tokenizer:
    """Through transformers: tokenizer.json as it stands, else whatever AutoTokenizer can convert (imports torch)."""
    from transformers import PreTrainedTokenizerFast

    try:
        if (path / "tokenizer.json").is_file():
            loaded = PreTrainedTokenizerFast.from_pretrained(path)
        else:
            loaded = _converted(path)
        named = {name: text for name, text in loaded.special_tokens_map.items() if isinstance(text, str)}
        return Tokenizer(loaded.backend_tokenizer, named, _one_template(loaded.chat_template))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except Exception as error:  # transformers and its converters raise many kinds
        raise ModelError(f"{path}: the tokenizer cannot be read: {_first_line(error)}") from error


def _converted(path: Path) -> Any:
    if (path / "tokenizer.model").is_file() and not _importable("google.protobuf"):
        raise ModelError("it has a tokenizer.model but no tokenizer.json; to convert it, pip install protobuf")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=False)


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package above it
        return False


def _one_template(template: str | Mapping[str, str] | None) -> str | None:
    """A model may have several templates by name; chats take the default one."""
    return template.get("default") if isinstance(template, Mapping) else template


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
