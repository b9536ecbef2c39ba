"""models.py: who answers to a name, moves while visits go on, and what each tells of itself."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds
from fairstep.admission.limit_store import MemoryLimits
from fairstep.admission.limits import Limit
from fairstep.errors import EngineDead, RateLimited, UnknownModel
from fairstep.reception import Reception
from fairstep.serving.models import Models, Served, stamp_of
from fairstep.tenants import TenantTerms
from fakes_serving import FakeEngine, run


def served(name: str, **changes: Any) -> Served:
    engine: Any = FakeEngine()
    for key, value in changes.items():
        setattr(engine, key, value)
    return Served(name, engine)


def test_each_name_has_its_own_and_none_is_the_first() -> None:
    chat, draft = served("chat"), served("draft")
    models = Models(chat, draft)
    assert models.of("draft") is draft and models.of(None) is models.of("") is models.of("chat") is chat
    with pytest.raises(UnknownModel, match="'else' is not served here; 'chat', 'draft' are"):
        models.of("else")
    assert [card["id"] for card in (each.card() for each in models)] == ["chat", "draft"]


def test_a_name_moves_at_once_and_what_was_there_goes_on_for_those_that_use_it() -> None:
    async def test() -> None:
        old, new = served("chat"), served("chat")
        models = Models(old)
        models.of("chat").enter()
        assert models.move(new) is old and models.of("chat") is new
        gone = asyncio.create_task(old.unused())
        await asyncio.sleep(0)
        assert not gone.done()
        told = models.render().decode()
        assert 'model_name="fake"' in told and 'model_name="chat:retired-1"' in told
        old.leave()
        await gone
        models.forget(old)
        assert "retired" not in models.render().decode()

    run(test)


def test_a_new_name_retires_nobody_and_the_last_one_stays() -> None:
    models = Models(served("chat"))
    assert models.move(served("draft")) is None and len(models) == 2
    dropped = models.drop("chat")
    assert dropped is not None and models.first.name == "draft"
    assert models.drop("draft") is None and models.of("draft")


def test_one_that_is_dead_leaves_the_others_ready() -> None:
    chat, draft = served("chat", failure="out of memory"), served("draft")
    models = Models(chat, draft)
    assert models.states() == {"chat": "out of memory", "draft": "ready"}
    models.check_ready()
    draft.engine.failure = "gone, too"
    with pytest.raises(EngineDead, match="out of memory"):
        models.check_ready()


def test_a_visit_that_a_limit_of_the_model_bars_does_not_keep_it() -> None:
    chat = served("chat")
    terms = TenantTerms("t", limits=(Limit(what="requests", per="minute", amount=1, model="chat"),))
    reception = Reception(Admission(QueueBounds(), MemoryLimits()), lambda: "", lambda: 0.0, lambda: 1e9)
    first, second = (reception.arrive(terms, "/v1/completions", 1) for _ in range(2))
    chat.take(first)
    first.count(prompt_tokens=1, max_tokens=1, sequences=1)
    with pytest.raises(RateLimited):
        chat.take(second)
    assert chat.users == 1
    first.leave(1, answered=True)
    assert chat.users == 0 and not reception._visits
    reception.check()


def test_one_is_used_for_as_long_as_something_is_worked_out_with_it() -> None:
    chat = served("chat")
    with chat.used() as engine:
        assert engine is chat.engine and chat.users == 1
    chat.engine.failure = "gone"
    with pytest.raises(EngineDead), chat.used():
        pass
    assert chat.users == 0


def test_the_name_that_every_request_is_for_is_known_while_there_is_one() -> None:
    models = Models(served("chat"))
    assert models.only_name == "chat"
    models.move(served("draft"))
    assert models.only_name == ""
    models.drop("chat")
    assert models.only_name == "draft"


def test_a_file_in_a_folder_is_the_model_s_too(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_text("one")
    before = stamp_of(str(tmp_path))
    os.utime(file, ns=(before + 1, before + 1))
    assert stamp_of(str(tmp_path)) == before + 1


def test_the_revision_hangs_on_the_files(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("one")
    first = served("chat", source=str(file))
    assert first.revision == served("other", source=str(file)).revision
    assert stamp_of(str(file)) and not stamp_of("a name")
    file.touch()
    assert first.revision != served("chat", source=str(file)).revision
