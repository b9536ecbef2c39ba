"""state.py: one folder, one owner."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairstep.errors import ConfigError
from fairstep.stores.answers import Answer, MemoryAnswers
from fairstep.stores.state import State

ANSWER = Answer(b"f", 200, "text/plain", b"x")
HOLDING = """
import sys
from pathlib import Path
from fairstep.stores.state import State

state = State(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_without_a_folder_nothing_is_written() -> None:
    state = State()
    assert isinstance(state.answers, MemoryAnswers)
    state.close()


def test_a_folder_is_made_and_what_is_in_it_is_found_again(tmp_path: Path) -> None:
    for _ in range(2):
        state = State(tmp_path / "new" / "state")
        state.answers.save(b"a", "t", ANSWER, 1.0)
        state.close()
    state = State(tmp_path / "new" / "state")
    assert state.answers.find(b"a", 2.0) == ANSWER
    state.close()


def test_a_folder_has_one_owner_until_that_ends_however(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="another server"):
            State(tmp_path)
        process.kill()
    State(tmp_path).close()


def test_a_folder_that_cannot_be_used_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"state: the folder .*file"):
        State(tmp_path / "file")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "state.sqlite").write_text("this is no database" * 100)
    with pytest.raises(ConfigError, match=r"state: the folder .*broken"):
        State(broken)
