"""The command line: one function a command. Turns named errors into one line and an exit status."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..config import EngineConfig, Machine, ServeConfig
from ..errors import ConfigError, FairstepError
from .bench_options import bench_options
from .completion_command import SHELLS, ModelName, completion_script
from .models_file import sources_of
from .options import SectionedCommand, config_options, sampling_options, taken_sampling
from .settings import Settings
from .simulate_options import simulate_options

PROGRAM = "fairstep"
MODEL_HELP = """\b
MODEL is one of
  smollm2             the model that `make setup` installs
  a folder            in Hugging Face's layout: config.json, *.safetensors, tokenizer
  a .gguf file
  a Hugging Face id   such as HuggingFaceTB/SmolLM2-135M-Instruct; needs a network the first time
`fairstep models` lists what is on this machine."""

LINES_HELP = """\b
An input line is a JSON object with `prompt` (a text, or token ids) or
`messages` (a conversation), and any optional field of the HTTP API:
  {"prompt": "The sky is", "max_tokens": 20}
  {"id": "a7", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
`model`, `stream` and fields nobody knows are ignored; `n` must be 1, and a
line has no deadline. Empty lines do not count.

\b
An output line, in the input's order:
  {"index": 0, "text": "...", "finish_reason": "stop", "stop_reason": null,
   "usage": {...}, "made_from": "..."}
  {"index": 1, "id": "a7", "error": {"message": "...", ...}, "made_from": "..."}
`index` counts from 0, `id` is the line's own. `made_from` tells a later run
whether line, model and options are still the same.

\b
Ended in any way, also by kill -9, the same command goes on where it was.
Exit status: 0 all lines answered, 1 some have an error, 2 a wrong argument,
130 stopped by Ctrl-C."""

COMPLETION_HELP = """\b
bash   echo 'eval "$(fairstep completion bash)"' >> ~/.bashrc
zsh    echo 'eval "$(fairstep completion zsh)"' >> ~/.zshrc
fish   fairstep completion fish > ~/.config/fish/completions/fairstep.fish"""

TRACE_HELP = """\b
A trace is a CSV file: a header line, then a request a line; # begins a remark.
  arrival_s, input_tokens, output_tokens    needed (arrival_s not with --rate)
  tenant (or client)                        whose it is
  max_tokens, priority                      as the request says them
  shared_tokens (or reusable_prefix_tokens) of the prompt, shared in the tenant
  deadline_s, ttft_deadline_s, cancel_s     seconds from arrival

\b
Examples:
  fairstep simulate --suite noisy_neighbour --policy fcfs
  fairstep simulate --suite overload --policy drr --quantum 500 --plot o.png
  fairstep simulate --trace chat.csv --shorter 16 --faster 2 --json
  fairstep simulate --suite deadline_storm --believed 0.5"""

BENCH_HELP = """\b
Examples:
  fairstep bench
  fairstep bench --virtual --mix chat --mix code --plot virtual.png
  fairstep bench --trace chat.csv --shorter 16 --load 0.5 --load 1"""

INTERRUPTED = 130  # 128 + SIGINT, as shells say it


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Serve a language model to many people at once, or use it here.

    \b
      fairstep serve smollm2                    an OpenAI-compatible server on 127.0.0.1:8000
      fairstep chat smollm2 "Why is it dark?"   one answer, streamed
      fairstep chat smollm2                     a conversation
      fairstep generate smollm2 --input prompts.jsonl --output answers.jsonl
      fairstep models                           what is on this machine, and what it needs
      fairstep simulate --suite noisy_neighbour how tenants would share it
      fairstep bench                            what continuous batching brings on this machine
      fairstep tenants new-key acme             a key for somebody who shares the server
    """


@cli.command(cls=SectionedCommand, epilog=MODEL_HELP)
@click.argument("model", type=ModelName(), nargs=-1)
@config_options(ServeConfig)
def serve(model: tuple[str, ...], config_file: Path | None, **given: Any) -> None:
    """Serve MODEL over HTTP in OpenAI's protocol, or several: NAME=MODEL NAME=MODEL.

    Settings come from the command line, then from the file of --config (the same names with _ for -), then from
    defaults that fit the machine; all are shown at start.
    """
    settings = Settings.settle(given, config_file, Machine.found())
    sources = sources_of(model, settings.config)
    from .serve_command import run_server

    run_server(sources, settings)


@cli.command(cls=SectionedCommand, epilog=MODEL_HELP)
@click.argument("model", type=ModelName())
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="What the model is told before the conversation.")
@click.option("--no-history", "history", flag_value=False, default=True, help="Do not keep what you type.")
@sampling_options("The same seed gives the same answer.")
@config_options(EngineConfig)
def chat(model: str, prompt: str | None, config_file: Path | None, **given: Any) -> None:
    """Talk with MODEL in the terminal.

    With PROMPT, one answer is printed. Without it, each line you enter is answered; \"\"\" at the beginning of a line
    begins a text of many lines, which ends with \"\"\". Ctrl-C stops an answer, Ctrl-D ends the conversation, /help
    lists what else there is. What you type is kept in your cache folder, for the arrow keys of the next time.
    """
    system, history = given.pop("system"), given.pop("history")
    sampling = taken_sampling(given)
    settings = Settings.settle(given, config_file, Machine.found())
    from .chat_command import run_chat

    run_chat(model, prompt, settings, system=system, history=history, sampling=sampling)


@cli.command(cls=SectionedCommand, epilog=f"{LINES_HELP}\n\n{MODEL_HELP}")
@click.argument("model", type=ModelName())
@click.option("--input", "input_file", type=click.Path(), required=True, metavar="FILE", help="JSON lines; - is stdin.")
@click.option(
    "--output", "output_file", type=click.Path(), required=True, metavar="FILE", help="JSON lines; - is stdout."
)
@click.option("--overwrite", is_flag=True, help="Begin anew, whatever the output holds.")
@sampling_options("Makes a run repeatable: each line gets its own seed from it (to the token: with --dtype float32).")
@config_options(EngineConfig)
def generate(
    model: str, input_file: str, output_file: str, overwrite: bool, config_file: Path | None, **given: Any
) -> int:
    """Answer every line of a file with MODEL.

    Sampling options hold for lines that do not say otherwise.
    """
    sampling = taken_sampling(given)
    settings = Settings.settle(given, config_file, Machine.found())
    from .generate_command import Job, run_generate
    from .generate_line import LineOptions

    options = LineOptions(max_tokens=sampling.pop("max_tokens"), seed=sampling.pop("seed", None), fields=sampling)
    job = Job(model=model, input=input_file, output=output_file, options=options, overwrite=overwrite)
    return 0 if run_generate(job, settings) else 1


@cli.command(cls=SectionedCommand)
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all reasons and bytes.")
@config_options(EngineConfig)
def models(paths: tuple[Path, ...], as_json: bool, config_file: Path | None, **given: Any) -> None:
    """List the models on this machine and what each would need.

    Looks for the packaged model, in Hugging Face's cache and in PATHS: .gguf files, model folders, or folders with
    such in them. Memory is for the settings given, else for the defaults here. Reads no weights.
    """
    settings = Settings.settle(given, config_file, Machine.found())
    from .models_command import list_models

    print(list_models(paths, settings.config, as_json=as_json))


@cli.group()
def tenants() -> None:
    """Make keys for tenants, and see what a tenants file means.

    The file says who may use a server and on what terms: docs/tenants.md.
    """


@tenants.command("new-key")
@click.argument("name")
def new_key(name: str) -> None:
    """Make a key for a tenant.

    Prints it and its SHA-256, which the tenants file gets instead.
    """
    from .tenants_command import key_text

    print(key_text(name))


@tenants.command("check")
@click.argument("file", type=click.Path(path_type=Path))
def check_tenants(file: Path) -> None:
    """Show what a tenants file means.

    What is wrong in it is told by its place; then the exit status is 2.
    """
    from .tenants_command import book_text
    from .tenants_file import read_tenants

    print(book_text(read_tenants(file)))


@cli.command(cls=SectionedCommand, epilog=TRACE_HELP)
@simulate_options
def simulate(*, list: bool, json: bool, plot: Path | None, **asked: Any) -> None:
    """See how a policy shares the machine, in virtual time: no model, no waiting.

    A trace of requests goes through the scheduler itself; only the steps are made up, each taking its modelled time.
    Prints service, latencies and goodput for each tenant.
    """
    from .simulate_command import Job, list_suites, run_simulation

    print(list_suites() if list else run_simulation(Job(**asked), as_json=json, plot=plot))


@cli.command(epilog=BENCH_HELP)
@click.argument("model", type=ModelName(), default="smollm2")
@bench_options
def bench(plot: Path | None, **asked: Any) -> None:
    """Compare static and continuous batches of MODEL: the same requests at the same instants by each rule.

    Prints rates, latencies, goodput and how full the seats were; the last line is JSON. Nothing else should run on the
    machine meanwhile.
    """
    from .bench_command import Job, bench_text

    print(bench_text(Job(**asked), plot))


@cli.command(epilog=COMPLETION_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and models."""
    print(completion_script(cli, shell, PROGRAM))


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 the model cannot be served, 2 a setting or argument is wrong."""
    try:
        status = cli.main(args, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        status = problem.exit_code
    except (KeyboardInterrupt, click.Abort):
        status = INTERRUPTED
    except FairstepError as problem:
        print(f"fairstep: {problem}", file=sys.stderr)
        status = 2 if isinstance(problem, ConfigError) else 1
    sys.exit(status or 0)
