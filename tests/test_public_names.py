"""What `import fairstep` offers, and what it leaves alone."""

import subprocess
import sys
from pathlib import Path

import pytest

import fairstep

ROOT = Path(__file__).resolve().parent.parent


def python(code: str, *, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", fairstep.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(fairstep, name) is not None


def test_all_is_what_dir_shows_and_nothing_twice() -> None:
    assert dir(fairstep) == sorted(fairstep.__all__)
    assert len(set(fairstep.__all__)) == len(fairstep.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Unheard'"):
        fairstep.Unheard  # noqa: B018


def test_importing_loads_neither_torch_nor_a_server(tmp_path: Path) -> None:
    heavy = "torch transformers numpy fastapi starlette uvicorn asyncio gguf click"
    code = f"import fairstep, sys; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = python(code, cwd=tmp_path)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("home", ["AsyncEngine", "EngineConfig", "SamplingParams"])
def test_the_front_loads_no_torch(home: str, tmp_path: Path) -> None:
    done = python(f"import fairstep, sys; fairstep.{home}; print('torch' in sys.modules)", cwd=tmp_path)
    assert done.stdout.strip() == "False", done.stdout + done.stderr


def test_the_folder_cannot_be_imported_under_its_own_name() -> None:
    done = python("import engine", cwd=ROOT)
    assert done.returncode == 1
    assert "imported as 'fairstep'" in done.stderr
