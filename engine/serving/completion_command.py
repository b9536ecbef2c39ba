"""Completion in the shell: click's own script, and which model names it offers. Loads no library that takes time."""

from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class
from click.types import StringParamType

from ..model.sources import ALIASES, CONFIG_FILE, GGUF_SUFFIX, hub_folders

SHELLS = ("bash", "zsh", "fish")


class ModelName(StringParamType):
    """The MODEL argument: any text; completed from aliases, the hub's cache and models in the folder being typed."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [*ALIASES, *(name for name, _ in hub_folders()), *local_models(incomplete)]
        fitting = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return fitting or [CompletionItem(incomplete, type="file")]  # then the shell completes any path


def local_models(begun: str) -> list[str]:
    """Paths of models in the folder that `begun`, the beginning of a path, leads to; spelled as it is."""
    folder = begun[: begun.rfind("/") + 1]
    try:
        entries = sorted(Path(folder or ".").expanduser().iterdir())
    except OSError:
        return []
    return [folder + each.name for each in entries if each.name.endswith(GGUF_SUFFIX) or (each / CONFIG_FILE).is_file()]


def completion_script(command: click.Command, shell: str, program: str) -> str:
    """What a shell reads to complete `program`'s arguments."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    return kind(command, {}, program, f"_{program.upper()}_COMPLETE").source()
