"""The command line: `fairstep serve` and `fairstep chat`. Turns named errors into one line and an exit status."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..config import EngineConfig, Machine, ServeConfig
from ..errors import ConfigError, FairstepError
from .options import SectionedCommand, config_options
from .settings import Settings

MODEL_HELP = """\b
MODEL is one of
  smollm2             the model that `make setup` installs
  a folder            in Hugging Face's layout: config.json, *.safetensors, tokenizer
  a .gguf file
  a Hugging Face id   such as HuggingFaceTB/SmolLM2-135M-Instruct; needs a network the first time"""

INTERRUPTED = 130  # 128 + SIGINT, as shells say it


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="fairstep", message="%(prog)s %(version)s")
def cli() -> None:
    """Serve a language model to many people at once, or talk to it here.

    \b
      fairstep serve smollm2                    an OpenAI-compatible server on 127.0.0.1:8000
      fairstep chat smollm2 "Why is it dark?"   one answer, streamed
      fairstep chat smollm2                     a conversation
    """


@cli.command(cls=SectionedCommand, epilog=MODEL_HELP)
@click.argument("model")
@config_options(ServeConfig)
def serve(model: str, config_file: Path | None, **given: Any) -> None:
    """Serve MODEL over HTTP in OpenAI's protocol.

    Settings come from the command line, then from the file of --config (the same names with _ for -), then from
    defaults that fit the machine; all are shown at start.
    """
    settings = Settings.settle(given, config_file, Machine.found())
    from .serve_command import run_server

    run_server(model, settings)


@cli.command(cls=SectionedCommand, epilog=MODEL_HELP)
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="What the model is told before the conversation.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=512, show_default=True, help="Longest answer.")
@click.option("--temperature", type=float, help="0 always takes the likeliest token (default: the model's own).")
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@config_options(EngineConfig)
def chat(model: str, prompt: str | None, config_file: Path | None, **given: Any) -> None:
    """Talk with MODEL in the terminal.

    With PROMPT, one answer is printed. Without it, each line you enter is answered: Ctrl-C stops an answer, Ctrl-D
    ends the conversation.
    """
    asked = {name: given.pop(name) for name in ("max_tokens", "temperature", "seed")}
    system = given.pop("system")
    settings = Settings.settle(given, config_file, Machine.found())
    from .chat_command import run_chat

    run_chat(model, prompt, settings, system=system, **asked)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 the model cannot be served, 2 a setting or argument is wrong."""
    try:
        status = cli.main(args, prog_name="fairstep", standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        status = problem.exit_code
    except (KeyboardInterrupt, click.Abort):
        status = INTERRUPTED
    except FairstepError as problem:
        print(f"fairstep: {problem}", file=sys.stderr)
        status = 2 if isinstance(problem, ConfigError) else 1
    sys.exit(status or 0)
