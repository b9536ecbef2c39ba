"""aside.py: in order, in a thread, and never longer than anybody will wait."""

import asyncio
import threading

import pytest

from fairstep.errors import StoreFailed
from fairstep.stores.aside import Aside
from fakes_serving import run


def test_work_is_done_one_by_one_in_one_other_thread() -> None:
    async def test() -> None:
        aside, done = Aside(), []
        here = threading.get_ident()
        threads = await asyncio.gather(
            *(aside.run(lambda n=n: done.append(n) or threading.get_ident()) for n in range(20))  # type: ignore[misc]
        )
        assert done == list(range(20))
        assert len(set(threads)) == 1 and here not in threads
        aside.close()

    run(test)


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    async def test() -> None:
        aside = Aside()
        with pytest.raises(ZeroDivisionError):
            await aside.run(lambda: 1 // 0)
        assert await aside.run(lambda: 7) == 7
        aside.close()

    run(test)


def test_nobody_waits_longer_than_patience_lasts_and_what_was_given_up_never_begins() -> None:
    async def test() -> None:
        aside, release, done = Aside(patience=0.05), threading.Event(), []
        results = await asyncio.gather(
            aside.run(release.wait), aside.run(lambda: done.append(1)), return_exceptions=True
        )
        assert [type(result) for result in results] == [StoreFailed, StoreFailed]
        release.set()
        assert await aside.run(lambda: done.append(2)) is None
        assert done == [2]
        aside.close()

    run(test)
