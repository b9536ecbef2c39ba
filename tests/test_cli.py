"""The command line: what is said, and the exit status. The commands themselves are replaced."""

from typing import Any

import pytest

from fairstep.errors import ConfigError, EngineDead, ModelError
from fairstep.serving import chat_command, cli, serve_command


def status_of(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(args))
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What reaches the commands instead of a model."""
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(serve_command, "run_server", lambda *args: made.append(args))
    monkeypatch.setattr(chat_command, "run_chat", lambda *args, **named: made.append((*args, named)))
    return made


def test_serve_hands_over_the_model_and_its_settings(calls: list[tuple[Any, ...]]) -> None:
    assert status_of("serve", "m", "--port", "0", "--max-seats", "2") == 0
    [(model, settings)] = calls
    assert (model, settings.config.port, settings.config.max_seats) == ("m", 0, 2)
    assert settings.origins["port"] == "command line"


def test_chat_hands_over_the_prompt_and_how_to_sample(calls: list[tuple[Any, ...]]) -> None:
    assert status_of("chat", "m", "hello", "--max-tokens", "3", "--seed", "4", "--system", "be brief") == 0
    [(model, prompt, _, named)] = calls
    assert (model, prompt) == ("m", "hello")
    assert named == {"system": "be brief", "max_tokens": 3, "temperature": None, "seed": 4}


@pytest.mark.parametrize(
    ("error", "status"),
    [(ModelError("no such model"), 1), (ConfigError("port is wrong"), 2), (EngineDead("the worker ended"), 1)],
)
def test_a_named_error_is_one_line_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, status: int
) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(serve_command, "run_server", fail)
    assert status_of("serve", "m") == status
    assert capsys.readouterr().err == f"fairstep: {error}\n"


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve_command, "run_server", interrupt)
    assert status_of("serve", "m") == 130
    assert capsys.readouterr().err.strip() == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["serve", "m", "--workers", "2"], "workers must be 1"),
        (["serve", "m", "--kv-memory", "lots"], "kv_memory must be a size"),
        (["serve", "m", "--step-tokens", "4", "--max-seats", "5"], "step_tokens (4) must be at least max_seats (5)"),
        (["serve", "m", "--port", "99999"], "port must be an integer from 0 to 65535"),
        (["serve", "m", "--config", "/no/such.toml"], "/no/such.toml"),
        (["serve"], "Missing argument 'MODEL'"),
        (["sevre", "m"], "No such command 'sevre'"),
    ],
)
def test_a_wrong_setting_ends_with_2_before_anything_loads(
    calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert status_of(*args) == 2
    assert said in capsys.readouterr().err
    assert calls == []


@pytest.mark.parametrize("args", [["--help"], ["serve", "--help"], ["chat", "-h"], ["--version"]])
def test_help_and_version_are_told(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    assert status_of(*args) == 0
    assert "fairstep" in capsys.readouterr().out
