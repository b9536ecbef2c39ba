"""models.py: who answers to a name, moves while visits go on, and what each tells of itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairstep.errors import EngineDead, UnknownModel
from fairstep.serving.models import Models, Served, stamp_of
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


def test_the_revision_hangs_on_the_files(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("one")
    first = served("chat", source=str(file))
    assert first.revision == served("other", source=str(file)).revision
    assert stamp_of(str(file)) and not stamp_of("a name")
    file.touch()
    assert first.revision != served("chat", source=str(file)).revision
