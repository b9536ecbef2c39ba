"""answers.py and sqlite_answers.py: both stores keep what a plain model of the rules keeps."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from fairstep.stores.answers import KEPT_SECONDS, ROW_BYTES, Answer, Holdings, MemoryAnswers
from fairstep.stores.database import Database
from fairstep.stores.sqlite_answers import SCHEMA, SqliteAnswers

MOST = 4 * ROW_BYTES
ACTS = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),  # the key
        st.sampled_from("xyz"),  # the tenant
        st.integers(0, 2 * ROW_BYTES),  # bytes
        st.sampled_from((0, 1, 60, KEPT_SECONDS / 2, KEPT_SECONDS)),  # seconds since the one before
        st.booleans(),  # the store is opened again
    ),
    max_size=40,
)


def answer(size: int = 0, fingerprint: bytes = b"f") -> Answer:
    return Answer(fingerprint, 200, "text/plain", b"x" * size)


@given(ACTS)
def test_both_stores_keep_the_same_and_never_replace_what_they_have(
    acts: list[tuple[str, str, int, float, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        memory, database = MemoryAnswers(MOST), Database(Path(folder) / "answers", SCHEMA)
        sqlite, now = SqliteAnswers(database, MOST), 1e9
        for number, (key, tenant, size, seconds, again) in enumerate(acts):
            now += seconds
            if again:
                sqlite = SqliteAnswers(database, MOST)
            before = memory.find(key.encode(), now)
            coming = answer(size, str(number).encode())
            for store in (memory, sqlite):
                store.save(key.encode(), tenant, coming, now)
                store.check()
            assert memory.find(key.encode(), now) == (before or coming)
            for each in b"abcdef":
                assert memory.find(bytes([each]), now) == sqlite.find(bytes([each]), now)
        database.close()


def test_an_answer_is_kept_for_a_day() -> None:
    store = MemoryAnswers()
    store.save(b"a", "t", answer(), 0.0)
    assert store.find(b"a", KEPT_SECONDS - 1) == answer()
    assert store.find(b"a", KEPT_SECONDS) is None
    store.save(b"a", "t", answer(1), KEPT_SECONDS)
    assert store.find(b"a", KEPT_SECONDS) == answer(1)


def test_a_clock_that_jumps_back_loses_nothing() -> None:
    store = MemoryAnswers()
    store.save(b"a", "t", answer(), 1e9)
    store.save(b"a", "t", answer(5), 0.0)
    assert store.find(b"a", 0.0) == answer()


def test_whoever_has_most_in_a_full_store_loses_the_oldest() -> None:
    store = MemoryAnswers(5 * ROW_BYTES)
    store.save(b"small", "s", answer(), 0.0)
    for number in range(10):
        store.save(b"%d" % number, "flood", answer(), float(number + 1))
    assert store.find(b"small", 20.0) is not None
    assert store.find(b"0", 20.0) is None and store.find(b"9", 20.0) is not None


def test_a_full_store_is_left_a_little_below_full() -> None:
    holdings = Holdings(10)
    holdings.add("a", 3)
    holdings.add("b", 6)
    assert holdings.loser(1, begun=False) is None
    assert holdings.loser(2, begun=False) == holdings.loser(1, begun=True) == "b"
