"""Tokens that are matched whole in a text before the vocabulary's own rules see it, as transformers defines them.

The matching itself is that of the `tokenizers` library: leftmost, longest, without the GIL.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Backend


@dataclass(frozen=True, slots=True)
class Added:
    """One such token. `id` None: that of the vocabulary's token of the same spelling, else the next free one.

    special: a mark, not text. lstrip, rstrip: spaces before, after it belong to it. single_word: only between words.
    """

    text: str
    id: int | None = None
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    def library(self) -> AddedToken:
        """The same for the `tokenizers` library."""
        return AddedToken(
            self.text,
            special=self.special,
            lstrip=self.lstrip,
            rstrip=self.rstrip,
            single_word=self.single_word,
            normalized=False,
        )


def with_ids(added: Iterable[Added], known: Callable[[str], int | None], size: int) -> dict[int, Added]:
    """Every token by its id; those without one get the ids from `size` on that are free."""
    tokens = list(added)
    by_id = {token.id: token for token in tokens if token.id is not None}
    free = max([size, *(i + 1 for i in by_id)])
    for token in tokens:
        if token.id is None:
            there = known(token.text)
            by_id[free if there is None else there] = token
            free += there is None
    return by_id


class AddedTokens:
    """Cuts a text at the tokens that are written out in it."""

    def __init__(self, by_id: dict[int, Added]) -> None:
        self.by_id = by_id
        self.ids = {token.text: i for i, token in by_id.items()}
        matcher = Backend(models.WordLevel({"": 0}, unk_token=""))  # what is between them becomes one token, the ""
        matcher.add_tokens([token.library() for token in by_id.values()])
        spelled = {matcher.token_to_id(token.text): i for i, token in by_id.items()}
        self._matcher, self._spelled = matcher, spelled

    def split(self, text: str) -> Sequence[str | int]:
        """The text's parts in order: an id for each token found, and what is between them as it stands."""
        if not self.by_id:
            return [text] if text else []
        found = self._matcher.encode_batch([text], add_special_tokens=False)[0]
        parts = zip(found.ids, found.offsets, strict=True)
        return [self._spelled[token] if token in self._spelled else text[start:end] for token, (start, end) in parts]
