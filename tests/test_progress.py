"""How loading is shown."""

import io

from fairstep.serving.progress import LoadingDisplay


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_away_from_a_terminal_each_part_is_one_line() -> None:
    out = io.StringIO()
    display = LoadingDisplay(out)
    for what, fraction in [("imports", 0.0), ("weights", 0.1), ("weights", 0.9), ("warm-up", 1.0)]:
        display(what, fraction)
    display.close()
    assert out.getvalue() == "imports\nweights\nwarm-up\n"


def test_on_a_terminal_a_bar_comes_and_goes() -> None:
    out = Terminal()
    display = LoadingDisplay(out)
    display("weights", 0.0)
    display("weights", 1.0)
    display.close()
    display.close()
    assert "weights: 100%" in out.getvalue()
    assert out.getvalue().rstrip(" ").endswith("\r")
