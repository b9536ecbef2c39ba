"""Each field of the config is an option, with its help and its default."""

from dataclasses import fields
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fairstep.config import ServeConfig
from fairstep.serving.options import SectionedCommand, config_options


def given_by(*args: str) -> dict[str, Any]:
    """What a command is handed for these arguments, without the options that were not given."""
    handed: dict[str, Any] = {}

    @click.command()
    @config_options(ServeConfig)
    def command(**given: Any) -> None:
        handed.update(given)

    result = CliRunner().invoke(command, list(args))
    assert result.exit_code == 0, result.output
    assert set(handed) == {"config_file"} | {each.name for each in fields(ServeConfig)}
    return {name: value for name, value in handed.items() if value is not None}


def test_an_option_not_given_is_none() -> None:
    assert given_by() == {}


@pytest.mark.parametrize(
    ("args", "given"),
    [
        (["--max-seats", "3"], {"max_seats": 3}),
        (["--deterministic"], {"deterministic": True}),
        (["--no-prefix-cache"], {"prefix_cache": False}),
        (["--kv-memory", "64MiB"], {"kv_memory": "64MiB"}),
        (["--inter-token-target-ms", "40"], {"inter_token_target_ms": 40.0}),
        (["--inter-token-target-ms", "auto"], {"inter_token_target_ms": "auto"}),
        (["--batch-delay-ms", "5"], {"batch_delay_ms": 5.0}),
        (["--batch-compute-ms", "2.5", "--batching", "static"], {"batch_compute_ms": 2.5, "batching": "static"}),
        (["--dtype", "bfloat16"], {"dtype": "bfloat16"}),
        (["--metrics-prefix", "x"], {"metrics_prefix": "x"}),
    ],
)
def test_options_are_read_by_the_type_of_their_field(args: list[str], given: dict[str, Any]) -> None:
    assert given_by(*args) == given


def test_what_an_option_gives_the_config_takes() -> None:
    config = ServeConfig(**given_by("--kv-memory", "1KiB", "--inter-token-target-ms", "2.5", "--port", "0"))
    assert (config.kv_memory, config.inter_token_target_ms, config.port) == (1024, 2.5, 0)


@pytest.mark.parametrize(
    "args",
    [["--max-seats", "many"], ["--dtype", "int8"], ["--nonsense"], ["--port", "1.5"], ["--batch-delay-ms", "auto"]],
)
def test_what_cannot_be_read_is_a_usage_error_naming_the_option(args: list[str]) -> None:
    @click.command()
    @config_options(ServeConfig)
    def command(**given: Any) -> None: ...

    result = CliRunner().invoke(command, args)
    assert result.exit_code == 2
    assert args[0] in result.output


def test_the_help_has_sections_and_names_every_option() -> None:
    @click.command(cls=SectionedCommand)
    @config_options(ServeConfig)
    def command(**given: Any) -> None: ...

    text = CliRunner().invoke(command, ["--help"]).output
    assert text.index("Options:") < text.index("Server options:") < text.index("Engine options:")
    for each in fields(ServeConfig):
        assert f"--{each.name.replace('_', '-')}" in text
    assert "[default: 8MiB]" in text
