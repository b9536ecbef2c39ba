"""Taking a new book of tenants into use."""

import logging
import threading
from pathlib import Path

import pytest

from fairstep.errors import ConfigError
from fairstep.serving.tenant_book import TenantBook
from fairstep.tenants import Tenants, digest_of


def file_for(name: str) -> str:
    return f'[[tenants]]\nname = "{name}"\nkeys = ["{digest_of(name)}"]\nweight = {len(name)}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tenants.toml"
    path.write_text(file_for("acme"), encoding="utf-8")
    return path


def test_a_new_file_replaces_the_old_book_and_earlier_terms_stay(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    book = TenantBook(path)
    earlier = book.current.of("acme")
    path.write_text(file_for("beta") + file_for("ac"), encoding="utf-8")
    assert book.reload()
    assert [each.name for each in book.current.tenants] == ["beta", "ac"]
    assert book.current.by_key("acme") is None and book.current.by_key("beta") is not None
    assert (earlier.name, earlier.weight) == ("acme", 4)
    assert "2 tenants, 2 keys" in caplog.text


@pytest.mark.parametrize("text", ["[[tenants]]\nname = 3\n", "x", "", '[[tenants]]\nname = "beta"\n', None])
def test_a_wrong_file_changes_nothing_and_the_log_says_why(
    path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    book = TenantBook(path)
    before = book.current
    if text is None:
        path.unlink()
    else:
        path.write_text(text, encoding="utf-8")
    assert not book.reload()
    assert book.current is before
    [record] = caplog.records
    assert record.levelname == "ERROR" and str(path) in record.message and "stay as they were" in record.message
    path.write_text(file_for("beta"), encoding="utf-8")
    assert book.reload()
    assert book.current.by_key("beta") is not None


def test_a_wrong_file_at_the_start_is_an_error(path: Path) -> None:
    path.write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not TOML"):
        TenantBook(path)


def test_without_a_file_there_is_nothing_to_read_again(caplog: pytest.LogCaptureFixture) -> None:
    book = TenantBook()
    assert book.current == Tenants()
    assert not book.reload()
    assert "no tenants file" in caplog.text


def test_a_reader_in_another_thread_sees_one_book_or_the_other(path: Path) -> None:
    book = TenantBook(path)
    stop, mixed = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            current = book.current
            [only] = current.tenants
            if current.by_key(only.name) is not only or only.weight != len(only.name):
                mixed.append(only)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(20):
        path.write_text(file_for(f"t{10**number}"), encoding="utf-8")
        assert book.reload()
    stop.set()
    reader.join()
    assert mixed == []
