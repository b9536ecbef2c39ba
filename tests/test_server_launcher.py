"""`python server.py` is `fairstep serve`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def server_py(*args: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "server.py"), *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("folder", ["root", "elsewhere"])
def test_without_a_command_it_serves(folder: str, tmp_path: Path) -> None:
    done = server_py("--help", cwd=ROOT if folder == "root" else tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Usage: fairstep serve [OPTIONS] [MODEL]..." in done.stdout


def test_a_named_command_is_kept(tmp_path: Path) -> None:
    assert "Usage: fairstep chat" in server_py("chat", "--help", cwd=tmp_path).stdout


def test_a_mistake_is_one_line_and_a_status(tmp_path: Path) -> None:
    done = server_py("some-model", "--workers", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fairstep: workers must be a positive number")
    assert len(done.stderr.splitlines()) == 1


def test_the_root_is_off_the_path_before_anything_is_imported(tmp_path: Path) -> None:
    code = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["server.py", "--help"]
try:
    runpy.run_path({str(ROOT / "server.py")!r}, run_name="__main__")
except SystemExit:
    assert {str(ROOT)!r} not in sys.path, sys.path
    assert "kernels" not in sys.modules and "engine" not in sys.modules
    print("looked")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("looked\n"), done.stderr
