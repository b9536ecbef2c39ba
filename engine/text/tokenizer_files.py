"""What the small files beside a vocabulary say: special tokens, added tokens, chat template. Knows no vocabulary.

Read are tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja, as transformers
writes them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .added_tokens import Added

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """config: tokenizer_config.json as it is. named: bos_token and so on to their texts. template: jinja or None."""

    config: Mapping[str, Any]
    named: Mapping[str, str]
    added: tuple[Added, ...]
    template: str | None

    def flag(self, name: str, default: bool) -> bool:
        """A switch of tokenizer_config.json; null is as good as absent."""
        value = self.config.get(name)
        return default if value is None else bool(value)


def read_tokenizer_files(path: Path) -> TokenizerFiles:
    """What the files in a directory say; none of them has to be there. Raises ModelError naming the file."""
    config = _object(path / "tokenizer_config.json")
    special = _object(path / "special_tokens_map.json")
    named = {name: text for source in (special, config) for name in NAMES if (text := _text(source.get(name)))}
    added: dict[str, Added] = {}
    for token in (*_decoder(config), *_numbered(path), *_named(config, special, named)):
        there = added.get(token.text)
        if there is None:
            added[token.text] = token
        elif token.special and not there.special and there.id is not None:
            added[token.text] = Added(there.text, there.id, True, there.lstrip, there.rstrip, there.single_word)
    return TokenizerFiles(config, named, tuple(added.values()), _template(path, config))


def default_template(template: object) -> str | None:
    """A model may have several templates by name, in a list or a mapping; chats take the one called default."""
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, Mapping)}
    if isinstance(template, Mapping):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _decoder(config: Mapping[str, Any]) -> Iterator[Added]:
    """added_tokens_decoder: id to token."""
    entries = config.get("added_tokens_decoder") or {}
    if not isinstance(entries, Mapping):
        raise ModelError("tokenizer_config.json: added_tokens_decoder must be an object")
    for number, entry in entries.items():
        text = _text(entry)
        if not text or not str(number).isdigit():
            raise ModelError(f"tokenizer_config.json: added_tokens_decoder[{number!r}] is no token with a content")
        yield _token(text, entry, int(number))


def _numbered(path: Path) -> Iterator[Added]:
    """added_tokens.json: text to id."""
    for text, number in _object(path / "added_tokens.json").items():
        if not text or not isinstance(number, int) or number < 0:
            raise ModelError(f"added_tokens.json: {text!r} has no id")
        yield Added(text, number)


def _named(config: Mapping[str, Any], special: Mapping[str, Any], named: Mapping[str, str]) -> Iterator[Added]:
    """Tokens that a file calls special without giving an id."""
    entries: list[Any] = list(named.values())
    for source in (special, config):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            more = source.get(key) or []
            entries += more.values() if isinstance(more, Mapping) else more if isinstance(more, list) else []
    for entry in entries:
        text = _text(entry)
        if text:
            yield _token(text, entry, None, special=True)


def _token(text: str, entry: object, number: int | None, *, special: bool = False) -> Added:
    flags = entry if isinstance(entry, Mapping) else {}
    return Added(
        text,
        number,
        special=special or bool(flags.get("special")),
        lstrip=bool(flags.get("lstrip")),
        rstrip=bool(flags.get("rstrip")),
        single_word=bool(flags.get("single_word")),
    )


def _text(entry: object) -> str | None:
    """A token is its text, or an object with its text and how it is matched."""
    content = entry.get("content") if isinstance(entry, Mapping) else entry
    return content if isinstance(content, str) else None


def _template(path: Path, config: Mapping[str, Any]) -> str | None:
    own = path / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    return default_template(config.get("chat_template"))


def _object(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path.name} must hold an object")
    return found
