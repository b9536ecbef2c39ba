"""What a shell offers, and the script that makes it ask."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from fairstep.serving import completion_command
from fairstep.serving.cli import cli
from fairstep.serving.completion_command import SHELLS, completion_script


def offered(*args: str) -> list[tuple[str, str]]:
    """(kind, text) of what is offered for the last of `args`."""
    completer = ShellComplete(cli, {}, "fairstep", "_FAIRSTEP_COMPLETE")
    return [(item.type, item.value) for item in completer.get_completions(list(args[:-1]), args[-1])]


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_command, "hub_folders", lambda: [("org/small", Path("/x"))])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a GGUF file, a model folder and another one."""
    (tmp_path / "some.gguf").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "smol").mkdir()
    (tmp_path / "smol" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", ["serve", "chat", "generate"])
def test_models_are_offered_by_alias_hub_id_and_path(folder: Path, command: str) -> None:
    assert [text for _, text in offered(command, "")] == ["smollm2", "org/small", "smol", "some.gguf"]
    assert offered(command, "sm") == [("plain", "smollm2"), ("plain", "smol")]
    assert offered(command, f"{folder}/so") == [("plain", f"{folder}/some.gguf")]


def test_where_no_model_fits_the_shell_completes_paths(folder: Path) -> None:
    assert offered("chat", "oth") == [("file", "oth")]
    assert offered("chat", "/no/such/folder/") == [("file", "/no/such/folder/")]


def test_commands_options_and_choices_are_offered() -> None:
    assert {"serve", "chat", "generate", "models", "tenants", "simulate", "bench", "completion"} == {
        text for _, text in offered("")
    }
    assert "--max-tokens" in [text for _, text in offered("chat", "--max")]
    assert ("plain", "bfloat16") in offered("chat", "--dtype", "b")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str) -> None:
    script = completion_script(cli, shell, "fairstep")
    assert "fairstep" in script
    assert "_FAIRSTEP_COMPLETE" in script


def test_asking_for_completions_loads_nothing_heavy() -> None:
    program = (
        "import sys; from fairstep.serving.cli import cli; from click.shell_completion import ShellComplete as S; "
        "S(cli, {}, 'fairstep', 'X').get_completions(['chat'], 'sm'); "
        "heavy = {'torch', 'transformers', 'fastapi', 'pydantic', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(click.UsageError, match="'tcsh' is not one of"):
        cli.main(["completion", "tcsh"], standalone_mode=False)
