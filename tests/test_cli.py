"""The command line: what is said, and the exit status. The commands themselves are replaced."""

from pathlib import Path
from typing import Any

import pytest

from fairstep.errors import ConfigError, EngineDead, ModelError
from fairstep.serving import chat_command, cli, generate_command, models_command, serve_command


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
    assert (model, settings.config.port, settings.config.max_seats) == ({"m": "m"}, 0, 2)
    assert settings.origins["port"] == "command line"


def test_chat_hands_over_the_prompt_and_how_to_sample(calls: list[tuple[Any, ...]]) -> None:
    args = ("--max-tokens", "3", "--seed", "4", "--top-p", "0.5", "--system", "be brief", "--no-history")
    assert status_of("chat", "m", "hello", *args) == 0
    [(model, prompt, _, named)] = calls
    assert (model, prompt) == ("m", "hello")
    assert named == {"system": "be brief", "history": False, "sampling": {"max_tokens": 3, "seed": 4, "top_p": 0.5}}


@pytest.mark.parametrize(("answered", "status"), [(True, 0), (False, 1)])
def test_generate_hands_over_its_job_and_says_whether_all_was_answered(
    monkeypatch: pytest.MonkeyPatch, answered: bool, status: int
) -> None:
    made: list[Any] = []

    def run(job: Any, settings: Any) -> bool:
        made.append((job, settings))
        return answered

    monkeypatch.setattr(generate_command, "run_generate", run)
    args = ("--input", "in", "--output", "-", "--overwrite", "--seed", "4", "--top-k", "5", "--max-seats", "2")
    assert status_of("generate", "m", *args) == status
    [(job, settings)] = made
    assert (job.model, job.input, job.output, job.overwrite) == ("m", "in", "-", True)
    assert (job.options.max_tokens, job.options.seed, dict(job.options.fields)) == (512, 4, {"top_k": 5})
    assert settings.config.max_seats == 2


def test_models_hands_over_paths_and_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def listed(paths: Any, config: Any, *, as_json: bool) -> str:
        return f"{list(paths) == [tmp_path]} {config.dtype} {as_json}"

    monkeypatch.setattr(models_command, "list_models", listed)
    assert status_of("models", str(tmp_path), "--json", "--dtype", "float32") == 0
    assert capsys.readouterr().out == "True float32 True\n"


def test_completion_prints_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("completion", "zsh") == 0
    assert "#compdef fairstep" in capsys.readouterr().out


def test_tenants_new_key_prints_a_key_and_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("tenants", "new-key", "acme") == 0
    out = capsys.readouterr().out
    assert "fs-" in out and '[[tenants]]\n  name = "acme"\n  keys = ["' in out


def test_tenants_check_shows_what_a_file_means(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[anonymous]\nweight = 2\n", encoding="utf-8")
    assert status_of("tenants", "check", str(tmp_path / "t.toml")) == 0
    assert "anonymous  0     standard" in capsys.readouterr().out


def test_tenants_check_tells_a_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[anonymous]\nweight = 0\n", encoding="utf-8")
    assert status_of("tenants", "check", str(tmp_path / "t.toml")) == 2
    said = capsys.readouterr().err
    assert said == f"fairstep: {tmp_path / 't.toml'}: anonymous.weight must be greater than or equal to 1, not 0\n"


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
        (["serve", "m", "--workers", "0"], "workers must be"),
        (["serve", "m", "--kv-memory", "lots"], "kv_memory must be a size"),
        (["serve", "m", "--step-tokens", "4", "--max-seats", "5"], "step_tokens (4) must be at least max_seats (5)"),
        (["serve", "m", "--port", "99999"], "port must be an integer from 0 to 65535"),
        (["serve", "m", "--config", "/no/such.toml"], "/no/such.toml"),
        (["serve"], "name a MODEL to serve"),
        (["serve", "a", "b"], "each needs a name, as NAME=a"),
        (["serve", "m", "--models", "x.toml"], "the file alone names what is served"),
        (["chat", "m", "--temperature", "-1"], "temperature must be in [0, 100]"),
        (["chat", "m", "--max-tokens", "0"], "'--max-tokens': 0 is not in the range"),
        (["generate", "m", "--input", "x"], "Missing option '--output'"),
        (["models", "/no/such/folder"], "does not exist"),
        (["tenants", "new-key", "a b"], "NAME must be 1 to 64 letters"),
        (["tenants", "check", "/no/such.toml"], "tenants file /no/such.toml cannot be read"),
        (["sevre", "m"], "No such command 'sevre'"),
    ],
)
def test_a_wrong_setting_ends_with_2_before_anything_loads(
    calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert status_of(*args) == 2
    assert said in capsys.readouterr().err
    assert calls == []


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["serve", "--help"],
        ["chat", "-h"],
        ["generate", "-h"],
        ["models", "-h"],
        ["tenants", "-h"],
        ["tenants", "check", "-h"],
        ["completion", "-h"],
        ["--version"],
    ],
)
def test_help_and_version_are_told(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    assert status_of(*args) == 0
    assert "fairstep" in capsys.readouterr().out
