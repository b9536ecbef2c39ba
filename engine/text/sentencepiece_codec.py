"""A vocabulary out of a SentencePiece model (Kudo and Richardson 2018), by the sentencepiece package.

Normalisation, segmentation, byte tokens and user-defined pieces are the model's own. Control pieces and added tokens
that are written out in a text are matched whole. What is between them is a text of its own, with the model's space
before it; in a tokenizer that says `"legacy": false` only the beginning of the whole text gets that space.
"""

import sys
from collections.abc import Mapping, Sequence

from sentencepiece import SentencePieceProcessor

from ..errors import ModelError
from .added_tokens import Added, AddedTokens, with_ids
from .codec import UNBOUNDED
from .pieces import Pieces

SPACE = "\u2581"
# protobuf merges what is appended: normalizer_spec (field 3) with add_dummy_prefix (its field 3) false
WITHOUT_PREFIX = b"\x1a\x02\x18\x00"
NORMALIZABLE = "A\ufb01\u2460e\u0301\u200b\t\x01"  # case, compatibility, composition, no width, controls


class SentencePieceCodec:
    """A Codec over a model's serialized form. named: bos_token and so on to their texts, the model's own unless given.

    Raises ModelError for bytes that are no model, and for one that marks the ends of words.
    """

    def __init__(
        self,
        serialized: bytes,
        added: Sequence[Added] = (),
        named: Mapping[str, str] | None = None,
        *,
        legacy: bool = True,
        add_bos: bool = True,
        add_eos: bool = False,
    ) -> None:
        self._model = _load(serialized)
        self._spellings = self._model.id_to_piece(list(range(self._model.get_piece_size())))
        shape = str(self._model.normalize("a"))
        if shape.endswith(SPACE):
            raise ModelError("it marks the ends of words (treat_whitespace_as_suffix), which is not supported")
        prefixes = shape.startswith(SPACE)
        self._squeezes = self._model.normalize("a  b") == self._model.normalize("a b")
        self._later = _load(serialized + WITHOUT_PREFIX) if prefixes and not legacy else self._model
        self._added = self._merged(added)
        self.size = max([len(self._spellings), *(i + 1 for i in self._added.by_id)])
        self.longest = self._longest(prefixes)
        self.pieces: Pieces = _ModelPieces(self, prefixes=prefixes, squeezes=self._squeezes)
        self.named = {**self._own_names(), **(named or {})}
        self._before = self._frame("bos_token") if add_bos else ()
        self._after = self._frame("eos_token") if add_eos else ()

    @property
    def special(self) -> frozenset[int]:
        """Ids that are marks: control pieces, the unknown one, special added tokens."""
        return frozenset(i for i, token in self._added.by_id.items() if token.special)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        ids: list[int] = list(self._before) if add_special else []
        for place, part in enumerate(self._added.split(text)):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._model.encode(part) if place == 0 else self._encode_later(part)
        return [*ids, *self._after] if add_special else ids

    def id_of(self, token: str) -> int | None:
        return self._added.ids.get(token, self._piece_id(token))

    def spell(self, token: int) -> bytes:
        """The bytes of a token; none for an id outside the vocabulary."""
        if token in self._added.by_id:
            return self._added.by_id[token].text.encode()
        if not 0 <= token < len(self._spellings):
            return b""
        spelling = self._spellings[token]
        if self._model.is_byte(token):
            return bytes([int(spelling[1:-1], 16)])  # "<0x41>"
        return spelling.replace(SPACE, " ").encode()

    def begins_with_space(self, token: int) -> bool:
        """Whether a token is a piece that begins with the model's mark of a space."""
        inside = 0 <= token < len(self._spellings) and token not in self._added.by_id
        return inside and self._spellings[token].startswith(SPACE)

    def _encode_later(self, text: str) -> list[int]:
        """A part that follows a matched token."""
        if self._later is not self._model and self._squeezes and text[0] in (" ", SPACE):
            # the model would drop a text's first space: as in transformers the unknown token's text hides it
            hidden = self._spellings[self._model.unk_id()]
            ids: list[int] = self._later.encode(hidden + text)
            return ids[len(self._later.encode(hidden)) :]
        found: list[int] = self._later.encode(text)
        return found

    def _merged(self, added: Sequence[Added]) -> AddedTokens:
        """The model's control pieces and its unknown one, and what was added beside the model."""
        ids = list(range(len(self._spellings)))
        marks = [i for i, control in zip(ids, self._model.is_control(ids), strict=True) if control]
        own = [Added(self._spellings[i], i, special=True) for i in (*marks, self._model.unk_id())]
        given = {token.text: token for token in added}
        kept = [token for token in own if token.text not in given or given[token.text].id not in (None, token.id)]
        return AddedTokens(with_ids([*kept, *added], self._piece_id, len(ids)))

    def _own_names(self) -> dict[str, str]:
        model = self._model
        ids = {"bos": model.bos_id(), "eos": model.eos_id(), "unk": model.unk_id(), "pad": model.pad_id()}
        return {f"{name}_token": self._spellings[i] for name, i in ids.items() if i >= 0}

    def _frame(self, name: str) -> tuple[int, ...]:
        """The token of this name, if there is one; what is named is in the vocabulary or was added to it."""
        token = self.named.get(name)
        found = None if token is None else self.id_of(token)
        return () if found is None else (found,)

    def _piece_id(self, text: str) -> int | None:
        found: int = self._model.piece_to_id(text)
        return found if self._spellings[found] == text else None

    def _longest(self, prefixes: bool) -> int:
        """A run of unknown characters becomes one token, and a normalizer may drop any number of characters."""
        kept = str(self._model.normalize(NORMALIZABLE)) == (SPACE if prefixes else "") + NORMALIZABLE
        has_bytes = any(self._model.is_byte(list(range(len(self._spellings)))))
        if self._squeezes or not kept or not has_bytes:
            return UNBOUNDED
        return max(map(len, [*self._spellings, *self._added.ids]))


class _ModelPieces(Pieces):
    """As the model's own decoder has it, spaces are taken off pieces: one that comes as a byte token stays."""

    def __init__(self, codec: SentencePieceCodec, *, prefixes: bool, squeezes: bool) -> None:
        most = sys.maxsize if squeezes else int(prefixes)
        super().__init__(codec.spell, codec.special, strip=b" ", strip_most=most, mark_each_byte=True)
        self._codec = codec

    def leading(self, token: int) -> int:
        return int(self._codec.begins_with_space(token))


def _load(serialized: bytes) -> SentencePieceProcessor:
    if not serialized:
        raise ModelError("it is no SentencePiece model: it is empty")
    try:
        return SentencePieceProcessor(model_proto=serialized)
    except Exception as error:  # the package raises several kinds
        raise ModelError(f"it is no SentencePiece model: {error}") from error
