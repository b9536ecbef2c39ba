"""A thin launcher: `python server.py smollm2` is `fairstep serve smollm2`. Everything is in fairstep.serving."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def launch(args: list[str]) -> None:
    """Run the command line, with `serve` where no command is named."""
    # The folders engine/ and kernels/ here must not answer to their bare names: others own the name `kernels`.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    try:
        from fairstep.serving.cli import cli, main
    except ModuleNotFoundError as problem:
        sys.exit(f"{problem}: run `make setup` in {ROOT}, then .venv/bin/python server.py")
    named = args[:1] and args[0] in {*cli.commands, "--version"}
    main(args if named else ["serve", *args])


if __name__ == "__main__":
    launch(sys.argv[1:])
