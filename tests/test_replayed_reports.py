"""docs/replayed-reports.md keeps up with the tests: every test it names exists, and every replay is named there."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = (TESTS.parent / "docs" / "replayed-reports.md").read_text(encoding="utf-8")
ASKED = [  # the survey's numbers in the sections that are replayed
    *(1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 21, 23, 24, 26, 27, 29, 30, 32, 33, 35, 36, 38),
    *(47, 48, 50, 51, 53, 54, 56, 57, 59, 60, 62, 63, 65, 66, 68, 69, 70, 71, 73, 74, 76, 77, 79, 80),
    *(82, 83, 85, 86, 88, 89, 91, 92, 95, 96, 98),
]
REPORT = re.compile(r"[\w./-]+#\d+|CVE-\d+-\d+|GHSA(?:-\w{4}){3}")
ALIASES = {"text-generation-inference": "tgi", "lmms-eval": "EvolvingLMMs-Lab/lmms-eval"}


def rows() -> list[list[str]]:
    """The cells of each report's row."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| B")
    ]


def functions_of(path: Path) -> dict[str, str]:
    """Test functions of a file, and their docstrings."""
    found = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in found if node.name.startswith("test_")}


def test_every_report_has_one_row_with_its_words_and_a_test_or_what_it_waits_for() -> None:
    numbers = [int(number.removeprefix("B")) for number, *_ in rows()]
    assert len(numbers) == len(set(numbers)) and set(ASKED) <= set(numbers)
    waiting = PAGE[PAGE.index("## Waiting for a feature") :]
    for number, report, words, where in rows():
        assert REPORT.search(report) and words and where, number
        assert ("::" in where) != (f"| {number} |" in waiting), f"{number} has a test, or waits"


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE))
    assert len(named) == len(set(re.findall(r"`([^`]*::[^`]*)`", PAGE))), "something like a test is no test's name"
    assert [name for name in sorted(named) if name[1] not in functions_of(TESTS / name[0])] == []


def test_every_replay_is_named() -> None:
    own = [path for path in sorted(TESTS.glob("test_replayed_*.py")) if path != Path(__file__).resolve()]
    assert len(own) >= 11
    assert [
        f"{path.name}::{name}" for path in own for name in functions_of(path) if f"{path.name}::{name}`" not in PAGE
    ] == []


def test_the_reports_that_tests_speak_of_are_on_the_page() -> None:
    spoken = {
        report
        for path in TESTS.glob("test_*replay*.py")
        for words in functions_of(path).values()
        for report in REPORT.findall(words)
    }
    assert len(spoken) > 60
    told = {name.split("/")[-1] for name in REPORT.findall(PAGE)}
    short = {re.sub(r"^([\w./-]+)#", lambda match: ALIASES.get(match[1], match[1]) + "#", name) for name in spoken}
    assert {name.split("/")[-1] for name in short} - told == set()
