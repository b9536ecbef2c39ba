"""What an installation puts on the path: `fairstep` and nothing else."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files in a wheel built from a copy of the source, without a network."""
    source = tmp_path_factory.mktemp("a-b c")
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for path in [*(ROOT / "engine").rglob("*"), *(ROOT / "kernels").rglob("*")]:
        if path.suffix in {".py", ".typed", ".h", ".cpp"}:
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(out)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_only_fairstep_is_installed_at_the_top(wheel_names: list[str]) -> None:
    top = {name.split("/")[0] for name in wheel_names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"fairstep"}


def test_every_source_file_is_installed(wheel_names: list[str]) -> None:
    engine = {f"fairstep/{path.relative_to(ROOT / 'engine').as_posix()}" for path in (ROOT / "engine").rglob("*.py")}
    kernels = {f"fairstep/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "kernels").rglob("*.py")}
    installed = {name for name in wheel_names if name.endswith(".py")}
    assert installed == engine | kernels
    assert "fairstep/py.typed" in wheel_names
    step = {f"fairstep/kernels/cpu/{path.name}" for path in (ROOT / "kernels" / "cpu").glob("*.[hc]*")}
    assert len(step) > 5 and step <= set(wheel_names)


def test_the_version_is_the_same_everywhere() -> None:
    import fairstep

    assert importlib.metadata.version("fairstep") == fairstep.__version__


@pytest.mark.parametrize("root_on_path", [True, False])
def test_transformers_finds_its_own_kernels_package_or_none(root_on_path: bool, tmp_path: Path) -> None:
    # transformers looks for a package named `kernels`; the folder here must not break it
    code = (
        f"import sys; {root_on_path} and sys.path.insert(0, {str(ROOT)!r}); from transformers import LlamaForCausalLM"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_outside_the_checkout_no_bare_name_answers(tmp_path: Path) -> None:
    code = f"""
import importlib.util
for name in ("engine", "kernels", "server"):
    spec = importlib.util.find_spec(name)
    assert spec is None or not str(spec.origin).startswith({str(ROOT)!r}), spec
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
