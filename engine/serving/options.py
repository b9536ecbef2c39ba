"""Command-line options made from a config's fields, so that a setting has one name and one help text everywhere."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import click

from ..config import EngineConfig
from ..errors import ConfigError, InvalidParameter
from ..request import SamplingParams
from .settings import readable

SECTIONS = ("Options", "Sampling options", "Server options", "Engine options")
MAX_TOKENS = 512

Command = TypeVar("Command", bound=Callable[..., Any])


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings: the command's own first, then a config's."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for heading in sorted(sections, key=SECTIONS.index):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


class SectionOption(click.Option):
    """An option that the help shows under a heading of its own."""

    section: str


# name, type, metavar, help; the names are SamplingParams'
SAMPLING: tuple[tuple[str, type, str, str], ...] = (
    ("temperature", float, "N", "0 always takes the likeliest token  [default: the model's own]"),
    ("top_k", int, "N", "Draw from the N likeliest tokens  [default: the model's own]"),
    ("top_p", float, "N", "Draw from the likeliest tokens that have this probability  [default: the model's own]"),
    ("min_p", float, "N", "Drop tokens below N times the likeliest one's probability  [default: the model's own]"),
    ("repetition_penalty", float, "N", "Above 1: what prompt and answer hold becomes less likely."),
    ("presence_penalty", float, "N", "Taken off the logits of tokens that the answer holds."),
    ("frequency_penalty", float, "N", "The same for each time that the answer holds them."),
)


def sampling_options(seed_help: str) -> Callable[[Command], Command]:
    """A decorator that adds --max-tokens, --seed and the options of SAMPLING (None: not given)."""
    most = ("max_tokens", click.IntRange(min=1), "N", f"Longest answer, in tokens  [default: {MAX_TOKENS}]")
    rows = (most, *SAMPLING, ("seed", int, "N", seed_help))

    def add(command: Command) -> Command:
        for name, kind, metavar, text in reversed(rows):
            option = click.option(
                f"--{name.replace('_', '-')}", name, type=kind, metavar=metavar, help=text, cls=SectionOption
            )
            command = option(command)
            added: SectionOption = command.__click_params__[-1]  # type: ignore[attr-defined]
            added.section = "Sampling options"
        return command

    return add


def taken_sampling(given: dict[str, Any]) -> dict[str, Any]:
    """Take the sampling options out of what a command was given; only those that were set. Raises ConfigError."""
    names = ("max_tokens", *(name for name, *_ in SAMPLING), "seed")
    asked = {name: given.pop(name) for name in names}
    asked = {name: value for name, value in asked.items() if value is not None}
    try:
        SamplingParams(**asked)
    except InvalidParameter as problem:
        raise ConfigError(str(problem)) from None
    return {"max_tokens": MAX_TOKENS, **asked}


def config_options(config_type: type[EngineConfig]) -> Callable[[Command], Command]:
    """A decorator that adds `--config FILE` (as `config_file`) and an option for each field (None: not given)."""
    engine_keys = {each.name for each in fields(EngineConfig)}
    types = get_type_hints(config_type)

    def add(command: Command) -> Command:
        for each in reversed(fields(config_type)):
            command = click.option(*_names(each, types[each.name]), cls=SectionOption, **_traits(each, types))(command)
            added: SectionOption = command.__click_params__[-1]  # type: ignore[attr-defined]
            added.section = "Engine options" if each.name in engine_keys else "Server options"
        file = click.Path(dir_okay=False, path_type=Path)
        return click.option("--config", "config_file", type=file, help="TOML file with any of the settings below.")(
            command
        )

    return add


def _names(setting: Field[Any], kind: Any) -> tuple[str, str]:
    dashed = setting.name.replace("_", "-")
    return setting.name, f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"


def _traits(setting: Field[Any], types: dict[str, Any]) -> dict[str, Any]:
    kind = types[setting.name]
    text = setting.metadata["help"]
    if setting.default is not None:
        text += f"  [default: {readable(setting, setting.default)}]"
    traits: dict[str, Any] = {"default": None, "help": text}
    return traits if kind is bool else {**traits, **_reading(setting, kind)}


def _reading(setting: Field[Any], kind: Any) -> dict[str, Any]:
    """How an option is read and the word for it in the help; what stays text here, the config reads."""
    if "choices" in setting.metadata:
        return {"type": click.Choice(setting.metadata["choices"]), "metavar": "NAME"}
    if setting.metadata.get("size"):
        return {"type": click.STRING, "metavar": "SIZE"}
    if setting.metadata.get("span"):
        return {"type": click.STRING, "metavar": "N|MIN:MAX"}
    kinds = get_args(kind) or (kind,)  # `int | None` gives (int, NoneType)
    if Literal["auto"] in kinds:
        return {"type": click.STRING, "metavar": "N|auto", "callback": _number_or_text}
    if float in kinds:
        return {"type": click.FLOAT, "metavar": "N"}
    if int in kinds:
        return {"type": click.INT, "metavar": "N"}
    return {"type": click.STRING, "metavar": "FILE" if setting.metadata.get("file") else "TEXT"}


def _number_or_text(ctx: click.Context, param: click.Parameter, value: str | None) -> float | str | None:
    """A number as it was written, whole or not; another text, or none, stays what it is."""
    for kind in (int, float):
        with suppress(ValueError):
            return value if value is None else kind(value)
    return value
