"""prefix.py: what is found is what was computed, under the same salt, up to full pages, with one token left over."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.stepping.pages import PagePool
from fairstep.stepping.prefix import PrefixCache, root
from fairstep.stepping.rope_lengths import RopeLengths
from fairstep.stepping.sequence import Sequence
from fakes_stepping import admit

SIZE = 4


def cache_and_pool(pages: int = 32, *, enabled: bool = True) -> tuple[PrefixCache, PagePool]:
    pool = PagePool(pages, SIZE)
    return PrefixCache(pool, enabled=enabled), pool


def computed(
    cache: PrefixCache, pool: PagePool, tokens: list[int], upto: int | None = None, salt: str = ""
) -> Sequence:
    """A sequence without hits whose first `upto` tokens are computed and registered."""
    sequence = Sequence(admit(1, tokens, salt=salt))
    pool.allocate(sequence.pages, pool.needed(len(tokens) + 1))
    sequence.computed = len(tokens) if upto is None else upto
    cache.register(sequence)
    return sequence


def found(cache: PrefixCache, tokens: list[int], salt: str = "") -> list[int]:
    return cache.match(Sequence(admit(2, tokens, salt=salt)))


def test_full_pages_of_the_same_beginning_are_found_in_order() -> None:
    cache, pool = cache_and_pool()
    first = computed(cache, pool, list(range(14)))
    assert found(cache, [*range(12), 99]) == first.pages[:3]
    assert found(cache, [*range(6), 99, 99, 99]) == first.pages[:1], "the second page differs"
    assert found(cache, [99, *range(1, 12)]) == []


def test_at_least_one_token_is_left_to_compute() -> None:
    cache, pool = cache_and_pool()
    first = computed(cache, pool, list(range(8)))
    assert found(cache, list(range(8))) == first.pages[:1]
    assert found(cache, list(range(9))) == first.pages[:2]
    assert found(cache, list(range(4))) == []


def test_the_same_page_after_another_beginning_is_not_found() -> None:
    cache, pool = cache_and_pool()
    computed(cache, pool, [1, 1, 1, 1, 5, 6, 7, 8, 0])
    assert found(cache, [2, 2, 2, 2, 5, 6, 7, 8, 0]) == []
    assert found(cache, [5, 6, 7, 8, 0]) == []


def test_another_salt_finds_nothing() -> None:
    cache, pool = cache_and_pool()
    computed(cache, pool, list(range(9)), salt="a")
    assert found(cache, list(range(9)), salt="b") == []
    assert len(found(cache, list(range(9)), salt="a")) == 2


def test_roots_of_different_extras_differ_however_they_are_cut() -> None:
    extras: list[tuple[str | int, ...]] = [("",), ("", ""), ("a",), ("a", "b"), ("ab",), ("a', 'b",), ("a,b",)]
    extras += [("a", 1), ("a", "1"), ("a", 1, 0), ("a", 0, 1)]
    assert len({root(one) for one in extras}) == len(extras)


def test_a_page_partly_computed_is_not_found() -> None:
    cache, pool = cache_and_pool()
    first = computed(cache, pool, list(range(20)), upto=7)
    assert found(cache, list(range(20))) == first.pages[:1]
    first.computed = 8
    cache.register(first)
    assert found(cache, list(range(20))) == first.pages[:2]


def test_pages_of_a_sequence_that_left_are_found_until_they_are_evicted() -> None:
    cache, pool = cache_and_pool(pages=4)
    first = computed(cache, pool, list(range(9)))
    pool.release(first.pages)
    assert len(found(cache, list(range(9)))) == 2
    pool.allocate([], 3)
    assert len(found(cache, list(range(9)))) == 1, "the tail was evicted, the head is still there"


def test_a_second_copy_of_a_page_is_not_named() -> None:
    cache, pool = cache_and_pool()
    first, second = (computed(cache, pool, list(range(9))) for _ in range(2))
    assert found(cache, list(range(9))) == first.pages[:2]
    pool.release(second.pages)
    assert pool.cached == 0
    assert first.named == second.named == 2


def test_a_sequence_begins_with_its_hits_and_they_are_counted() -> None:
    cache, pool = cache_and_pool()
    first = computed(cache, pool, list(range(9)))
    second = Sequence(admit(2, range(10)))
    cache.use(second, cache.match(second))
    assert second.pages == first.pages[:2] and second.computed == second.hits == 8 and second.named == 2
    assert (cache.queries, cache.hits) == (10, 8)
    second.state = "running"
    cache.check(second)


def test_pages_filled_by_drawn_tokens_are_found_by_who_knows_them_too() -> None:
    cache, pool = cache_and_pool()
    first = computed(cache, pool, list(range(6)))
    for token in (6, 7, 8):
        first.take(token, context=100)
    first.computed = 8
    cache.register(first)
    assert found(cache, list(range(9))) == first.pages[:2]


def test_nothing_is_hashed_twice() -> None:
    cache, pool = cache_and_pool()
    sequence = Sequence(admit(1, range(17)))
    cache.match(sequence)
    pool.allocate(sequence.pages, 5)
    before = list(sequence.digests)
    sequence.computed = 17
    cache.register(sequence)
    assert len(before) == 1, "a miss ends the look-up"
    assert len(sequence.digests) == 4 and sequence.digests[0] is before[0]


def test_switched_off_it_finds_and_names_nothing() -> None:
    cache, pool = cache_and_pool(enabled=False)
    first = computed(cache, pool, list(range(9)))
    assert found(cache, list(range(9))) == [] and first.digests == []
    pool.release(first.pages)
    assert pool.cached == 0


def test_a_sequence_that_tells_its_prompt_finds_nothing_and_is_found() -> None:
    cache, pool = cache_and_pool()
    first = Sequence(admit(1, range(9), prompt_logprobs=0))
    pool.allocate(first.pages, 3)
    first.computed = 9
    cache.register(first)
    assert cache.match(Sequence(admit(2, range(9), prompt_logprobs=0))) == []
    assert found(cache, list(range(9))) == first.pages[:2]
    again = Sequence(admit(3, range(9), prompt_logprobs=0))
    cache.use(again, [])
    assert cache.queries == 0, "it was not looked up"


def of_group(seq: int, group: int, salt: str = "") -> Sequence:
    return Sequence(admit(seq, range(9), group=group, salt=salt))


def test_switched_off_it_still_serves_each_group_for_itself() -> None:
    cache, pool = cache_and_pool(enabled=False)
    leader = of_group(1, group=1)
    pool.allocate(leader.pages, 3)
    leader.computed = 9
    cache.register(leader)
    assert cache.match(of_group(2, group=1)) == leader.pages[:2]
    assert cache.match(of_group(3, group=3)) == [] and cache.match(of_group(4, group=0)) == []
    assert cache.match(of_group(5, group=1, salt="other")) == []


def test_switched_on_a_group_is_like_everybody() -> None:
    cache, pool = cache_and_pool()
    first = computed(cache, pool, list(range(9)))
    assert cache.match(of_group(2, group=1)) == first.pages[:2]


def test_pages_are_found_only_under_the_same_rotary_regime() -> None:
    pool = PagePool(32, SIZE)
    cache = PrefixCache(pool, rope=RopeLengths(edge=10, switches=True))
    long = computed(cache, pool, list(range(11)))
    assert found(cache, list(range(10))) == []
    assert found(cache, list(range(12))) == long.pages[:2]


short = st.lists(st.integers(0, 2), min_size=1, max_size=14)


@given(st.lists(st.tuples(short, st.sampled_from("ab")), max_size=5), short, st.sampled_from("ab"))
def test_exactly_the_longest_common_beginning_in_full_pages_is_found(
    others: list[tuple[list[int], str]], tokens: list[int], salt: str
) -> None:
    cache, pool = cache_and_pool(pages=64)
    for known, its_salt in others:
        computed(cache, pool, known, salt=its_salt)
    longest = 0
    for known, its_salt in others:
        same = next(
            (i for i, (a, b) in enumerate(zip(known, tokens, strict=False)) if a != b), min(len(known), len(tokens))
        )
        longest = max(longest, same // SIZE if its_salt == salt else 0)
    assert len(found(cache, tokens, salt)) == min(longest, (len(tokens) - 1) // SIZE)
