"""The prefix cache: full pages, found again by a chained hash of all tokens up to their end. Knows no seats or steps.

After vLLM's automatic prefix caching; the chain's root holds the salt, so tenants never find each other's pages.
Switched off, it still serves sequences of one group (siblings), each group for itself.
"""

from array import array
from hashlib import blake2b

from .pages import PagePool
from .rope_lengths import RopeLengths
from .sequence import Sequence

DIGEST_BYTES = 32


class PrefixCache:
    """Names a sequence's computed pages and finds those of others that began the same. The PagePool keeps the names."""

    def __init__(self, pool: PagePool, *, enabled: bool = True, rope: RopeLengths | None = None) -> None:
        self._pool = pool
        self._page_size = pool.page_size
        self._enabled = enabled
        self._rope = rope or RopeLengths()
        self.queries = 0  # tokens looked up by sequences that were seated
        self.hits = 0  # tokens found for them

    def match(self, sequence: Sequence) -> list[int]:
        """Pages that hold the beginning of a sequence, the head first; at least one token is left to compute."""
        pages: list[int] = []
        if not self._looks_up(sequence):
            return pages
        for index in range((len(sequence.tokens) - 1) // self._page_size):
            page = self._pool.find(self._digest(sequence, index))
            if page is None:
                break
            pages.append(page)
        return pages

    def use(self, sequence: Sequence, pages: list[int]) -> None:
        """Begin a sequence's table with the pages that match() found just now."""
        assert not sequence.pages and not sequence.computed, f"sequence {sequence.seq} has begun already"
        self._pool.share(sequence.pages, pages)
        sequence.computed = sequence.hits = len(pages) * self._page_size
        sequence.named = len(pages)
        if self._looks_up(sequence):
            self.queries += len(sequence.tokens)
            self.hits += sequence.hits

    def register(self, sequence: Sequence) -> None:
        """Name the pages that a sequence has filled, to be called once their tokens are truly computed."""
        full = sequence.computed // self._page_size
        if full == sequence.named or not self._serves(sequence):
            return
        for index in range(sequence.named, full):
            self._pool.name(sequence.pages[index], self._digest(sequence, index))
            sequence.named = index + 1

    def check(self, sequence: Sequence) -> None:
        """Assert that only what is computed was named."""
        assert sequence.named * self._page_size <= sequence.computed, f"sequence {sequence.seq}: named before computed"
        assert self._looks_up(sequence) or not sequence.hits

    def _serves(self, sequence: Sequence) -> bool:
        return self._enabled or sequence.group != 0

    def _looks_up(self, sequence: Sequence) -> bool:
        """A cached page has no logits: who must tell log probabilities of the prompt computes it all."""
        return self._serves(sequence) and not sequence.tells_prompt

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """The key of a sequence's page number `index`: a hash of its tokens and of the key before it."""
        digests = sequence.digests
        while len(digests) <= index:
            parent = digests[-1] if digests else root(self._extras(sequence))
            start = len(digests) * self._page_size
            tokens = array("q", sequence.tokens[start : start + self._page_size])
            digests.append(blake2b(parent + tokens.tobytes(), digest_size=DIGEST_BYTES).digest())
        return digests[index]

    def _extras(self, sequence: Sequence) -> tuple[str | int, ...]:
        return sequence.salt, self._rope.regime(sequence), 0 if self._enabled else sequence.group


def root(extras: tuple[str | int, ...]) -> bytes:
    """Where a chain begins: sequences share pages only if all their extras (salt, rotary regime, group) agree."""
    return blake2b(repr(extras).encode(), digest_size=DIGEST_BYTES).digest()
