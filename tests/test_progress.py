"""How loading and answering are shown."""

import io

import pytest

from fairstep.clock import ManualClock
from fairstep.serving.progress import AnswersDisplay, LoadingDisplay


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


def answers(out: io.StringIO, total: int | None = 4, **more: bool) -> tuple[AnswersDisplay, ManualClock]:
    clock = ManualClock()
    return AnswersDisplay(total, 1, 0, clock.now, out=out, **more), clock


def test_away_from_a_terminal_answering_is_one_last_line() -> None:
    out = io.StringIO()
    display, clock = answers(out)
    with display:
        display.add_tokens(30)
        clock.jump(2)
        display.add_line(failed=False)
        display.add_line(failed=True)
        display.add_line(failed=False)
    assert out.getvalue() == "4 of 4 lines, 1 with an error: 30 tokens in 2.0 s (15 tokens/s)\n"


@pytest.mark.parametrize("resumable", [True, False])
def test_a_run_that_ends_early_says_that_it_can_go_on_if_it_can(resumable: bool) -> None:
    out = io.StringIO()
    display, _ = answers(out, None, resumable=resumable)
    with pytest.raises(KeyboardInterrupt), display:
        raise KeyboardInterrupt
    assert out.getvalue().startswith("1 lines: 0 tokens")
    assert ("the same command goes on" in out.getvalue()) == resumable


def test_on_a_terminal_answering_is_a_bar_with_tokens_a_second() -> None:
    out = Terminal()
    display, clock = answers(out)
    with display:
        clock.jump(2)
        display.add_tokens(30)
        assert "1/4" in out.getvalue()
        assert "15 tokens/s" in out.getvalue()
