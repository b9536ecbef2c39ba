"""The pool of KV pages: who holds which, which are free, which stay cached under a key. Knows no tokens and no policy.

After vLLM's block pool (PagedAttention, arXiv 2309.06180): unused cached pages are evicted least recently used first.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

NULL_PAGE = 0  # padding in page tables; never handed out


class PagePool:
    """Owner of page ids 1..pages, of every page table handed to it, and of the keys that pages are cached under.

    A page is held (in at least one table), cached (in none, but a key finds it) or free. Every call is O(1) a page.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        self.pages = pages
        self.page_size = page_size
        self._holders = [0] * (pages + 1)
        self._free = list(range(pages, NULL_PAGE, -1))
        self._unused: OrderedDict[int, None] = OrderedDict()  # cached pages, the next to evict first
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def available(self) -> int:
        """Pages that can be handed out: free and cached ones."""
        return len(self._free) + len(self._unused)

    @property
    def held(self) -> int:
        """Pages in at least one table."""
        return self.pages - self.available

    @property
    def cached(self) -> int:
        """Pages in no table that a key still finds."""
        return len(self._unused)

    def needed(self, tokens: int) -> int:
        """Pages that hold this many tokens."""
        return -(-tokens // self.page_size)

    def can_allocate(self, count: int, sharing: Sequence[int] = ()) -> bool:
        """Whether `count` fresh pages are left once the pages of `sharing` are shared, and so no longer evictable."""
        pinned = sum(not self._holders[page] for page in sharing)
        return count + pinned <= self.available

    def allocate(self, table: list[int], count: int) -> None:
        """Append `count` fresh pages to a table, evicting cached ones where no free page is left."""
        assert self.can_allocate(count), f"{count} pages asked for, {self.available} left"
        for _ in range(count):
            page = self._free.pop() if self._free else self._evict()
            self._holders[page] = 1
            table.append(page)

    def share(self, table: list[int], pages: Iterable[int]) -> None:
        """Append pages that are held or cached to a table."""
        for page in pages:
            assert self._holders[page] or page in self._unused, f"page {page} is free"
            self._unused.pop(page, None)
            self._holders[page] += 1
            table.append(page)

    def release(self, table: list[int]) -> None:
        """Give back a whole table, tail first: of what stays cached, tails are evicted before shared heads."""
        while table:
            page = table.pop()
            self._holders[page] -= 1
            assert self._holders[page] >= 0, f"page {page} was given back twice"
            if self._holders[page]:
                continue
            if page in self._key_of:
                self._unused[page] = None
            else:
                self._free.append(page)

    def find(self, key: bytes) -> int | None:
        """The page cached under a key."""
        return self._page_of.get(key)

    def name(self, page: int, key: bytes) -> None:
        """Let a held page be found by `key`. If another page has that key already, that one keeps it."""
        assert self._holders[page] and page not in self._key_of, f"page {page} is not held or has a key"
        if key not in self._page_of:
            self._page_of[key] = page
            self._key_of[page] = key

    def forget(self, table: Iterable[int]) -> None:
        """Let the held pages of a table no longer be found: what is in them is not to be trusted."""
        for page in table:
            key = self._key_of.pop(page, None)
            if key is not None:
                del self._page_of[key]

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Assert that every page is in one place and that `tables`, all there are, hold what is counted as held."""
        holders = Counter(page for table in tables for page in table)
        free, unused = set(self._free), set(self._unused)
        held = {page for page, count in enumerate(self._holders) if count}
        assert {page: self._holders[page] for page in held} == holders, "pages are held by no table, or not counted"
        assert len(free) == len(self._free), "a page is free twice"
        assert len(free) + len(unused) + len(held) == self.pages, "a page is lost, or in two places"
        assert free | unused | held == set(range(1, self.pages + 1)), "the null page was handed out"
        assert {key: page for page, key in self._key_of.items()} == self._page_of, "keys and pages disagree"
        assert unused <= self._key_of.keys() <= unused | held, "a cached page cannot be found, or a free one can"

    def _evict(self) -> int:
        page, _ = self._unused.popitem(last=False)
        del self._page_of[self._key_of.pop(page)]
        return page
