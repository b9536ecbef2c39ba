"""The files that a server's settings name, opened before it loads."""

from pathlib import Path

import pytest

from fairstep.admission.limit_store import Draw
from fairstep.config import ServeConfig
from fairstep.errors import ConfigError
from fairstep.serving.terms_of_use import admission_of, terms_of_use
from fairstep.tenants import digest_of


def test_nothing_named_is_nothing_opened() -> None:
    with terms_of_use(ServeConfig()) as terms:
        assert terms.tenants is None and terms.store is None and terms.state is None


def test_a_tenants_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(f'[[tenants]]\nname = "acme"\nkeys = ["{digest_of("k")}"]\n', encoding="utf-8")
    with terms_of_use(ServeConfig(tenants=str(path))) as terms:
        assert terms.tenants is not None and terms.tenants.current.by_key("k") is not None


@pytest.mark.parametrize("text", [None, "x", "[[tenants]]\n"])
def test_a_wrong_tenants_file_is_an_error_that_names_it(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "tenants.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tenants\.toml"), terms_of_use(ServeConfig(tenants=str(path))):
        pass


def test_counts_of_months_survive_in_their_file(tmp_path: Path) -> None:
    config = ServeConfig(limits_store=str(tmp_path / "counts.db"))
    for count in (0, 7):
        with terms_of_use(config) as terms:
            assert terms.store is not None and terms.store.count("acme", "tokens", 10**4) == count
            terms.store.add([Draw("acme", "tokens", 10**4, 7, 100)])


def test_a_store_that_cannot_be_opened_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    config = ServeConfig(limits_store=str(tmp_path / "no folder" / "counts.db"))
    with pytest.raises(ConfigError, match=r"limits_store: .*counts\.db"), terms_of_use(config):
        pass


def test_a_folder_of_state_is_opened_and_closed(tmp_path: Path) -> None:
    config = ServeConfig(state=str(tmp_path / "state"), answers_kept="1MiB")  # type: ignore[arg-type]
    for _ in range(2):
        with terms_of_use(config) as terms:
            assert terms.state is not None and terms.state.folder == tmp_path / "state"
            with pytest.raises(ConfigError, match="another server"), terms_of_use(config):
                pass


def test_the_bounds_of_the_queue_come_from_the_config() -> None:
    config = ServeConfig(max_queue=3, max_queue_tokens=50, max_queue_bytes=1000)
    caps = admission_of(config, None)._queue._caps
    assert caps == (3, 50, 1000)
