"""What a person types, one message at a time: arrow keys, a history kept between sessions, texts of many lines.

Knows no model. Without a terminal, each line of stdin is a message.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

PROMPT, CONTINUED = "> ", ". "
FENCE = '"""'  # begins and ends a text of many lines
MOST_LINES = 1000  # kept in the history
OWNER_ONLY = 0o600


class ChatLines:
    """Reads messages from stdin. `history`: where typed lines are kept; None: nowhere."""

    def __init__(self, history: Path | None = None) -> None:
        self.at_terminal = sys.stdin.isatty()
        self._history = history if self.at_terminal else None
        if self.at_terminal:
            _edit_lines(history)

    def next(self) -> str:
        """The next message. Raises EOFError at the end and KeyboardInterrupt at Ctrl-C."""
        try:
            return self._message()
        finally:
            if self._history is not None:
                _save(self._history)  # each time: a closed terminal ends the process at once

    def _message(self) -> str:
        line = input(PROMPT if self.at_terminal else "")
        if not self.at_terminal or not line.startswith(FENCE):
            return line
        lines = [line.removeprefix(FENCE)]
        while not lines[-1].rstrip().endswith(FENCE):
            lines.append(input(CONTINUED))
        return "\n".join(lines).rstrip().removesuffix(FENCE)


def history_file() -> Path:
    """Where typed lines are kept, by the XDG base directory rules."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return base / "fairstep" / "chat_history"


def _edit_lines(history: Path | None) -> None:
    """Arrow keys in input(), where Python has readline, and the lines of earlier sessions."""
    with suppress(ImportError):
        import readline

        readline.set_history_length(MOST_LINES)
        if history is not None:
            with suppress(OSError):  # none yet, or not readable: a conversation needs none
                readline.read_history_file(history)


def _save(history: Path) -> None:
    """Write what readline remembers; only the owner may read it, from its first byte on."""
    with suppress(ImportError, OSError):
        import readline

        history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(history, os.O_CREAT | os.O_WRONLY, OWNER_ONLY))
        readline.write_history_file(history)
        history.chmod(OWNER_ONLY)
