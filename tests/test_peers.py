"""http_loads.py and peers.py of the benchmarks: figures of what clients saw, ratios between servers, goals missed."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Benchmarks import one another as scripts of one folder do."""
    for name in [path.stem for path in BENCHMARKS.glob("*.py")]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return {name: import_module(name) for name in ("http_loads", "peers", "peer_servers", "stream_client")}


def answer(modules: dict[str, ModuleType], asked: float, tokens: tuple[float, ...], count: int = 0) -> Any:
    return modules["stream_client"].Answer(asked, tokens, tokens[-1], 10, count)


def test_rates_run_from_the_first_request_to_the_last_token(modules: dict[str, ModuleType]) -> None:
    told = modules["http_loads"].figures(
        [answer(modules, 1.0, (2.0, 3.0, 3.0)), answer(modules, 2.0, (2.5, 5.0), count=5)]
    )
    assert told["tokens_per_second"] == 2.0  # 3 and 5, by the server's count, in 4 seconds
    assert (told["ttft"], told["ttft_worst"], told["longest_gap"]) == (0.75, 1.0, 2.5)
    assert told["pace"] == 0.5625  # of 1 second by two gaps, and of 2.5 by four


def test_the_gap_that_a_long_prompt_tears_is_counted_from_the_last_token_before_it(
    modules: dict[str, ModuleType],
) -> None:
    stream = answer(modules, 0.0, (1.0, 1.1, 1.2, 1.3, 2.3, 2.4, 5.4))
    told = modules["http_loads"].gaps_beside(stream, answer(modules, 1.35, (2.35, 2.5)))
    assert (told["quiet_gap"], told["largest_gap"], told["gaps"]) == (0.1, 1.0, 10.0)  # what comes later is its own
    assert told["ttft"] == 1.0 and told["outlived"]


def test_a_stream_that_ends_before_the_long_prompt_answers_is_told(modules: dict[str, ModuleType]) -> None:
    stream = answer(modules, 0.0, (1.0, 1.1, 1.2))
    assert not modules["http_loads"].gaps_beside(stream, answer(modules, 1.15, (3.0,)))["outlived"]


def test_a_ratio_above_one_says_that_ours_is_better(modules: dict[str, ModuleType]) -> None:
    peers = modules["peers"]
    rate, wait = peers.Column("rate", "", "", more=True), peers.Column("wait", "", "")
    ours, theirs = ([{"rate": 4.0, "wait": 1.0}] * 2, [{"rate": 2.0, "wait": 3.0}, {"rate": 1.0, "wait": 5.0}])
    assert peers.ratios(rate, ours, theirs) == [3.0, 2.0, 4.0]
    assert peers.ratios(wait, ours, theirs) == [4.0, 3.0, 5.0]
    assert peers.ratios(wait, ours, [{"wait": 0.0}] * 2) == []


def test_goals_are_judged_against_the_best_other(modules: dict[str, ModuleType]) -> None:
    def row(times: float, gaps: float, ttft: float) -> dict[str, Any]:
        ratios = {"tokens_per_second": [times, times, times]}
        return {"ratios": ratios, "gaps": gaps, "ttft": ttft, "rounds": [{"outlived": True}]}

    def missed(closed: float, gaps: float, ttft: float) -> int:
        loads = {"closed 32": {"ours": row(1, 0, 0), "slow": row(5.0, 0, 0), "fast": row(closed, 0, 0)}}
        loads |= {"long prompt": {"ours": row(1, gaps, ttft), "slow": row(0, 9, 9.0), "fast": row(0, 9, 2.0)}}
        return len(modules["peers"].missed(loads, "ours"))

    assert missed(2.0, 5.0, 3.0) == 0
    assert missed(1.9, 5.0, 3.0) == missed(2.0, 5.1, 3.0) == missed(2.0, 5.0, 3.1) == 1


def test_whose_stream_was_too_short_is_told(modules: dict[str, ModuleType]) -> None:
    rows = {
        "long": {"rounds": [{"outlived": True}] * 2},
        "short": {"rounds": [{"outlived": True}, {"outlived": False}]},
    }
    assert modules["peers"].outrun(rows) == ["short"]


def test_a_server_that_does_not_start_is_told_with_what_it_said(modules: dict[str, ModuleType], tmp_path: Path) -> None:
    servers = modules["peer_servers"]
    with servers.Peers(tmp_path) as peers, pytest.raises(SystemExit, match="broken did not start:\nno model"):
        peers.start("broken=sh -c 'echo no model'")


@pytest.mark.parametrize("named", ["fairstep", "=http://127.0.0.1:1"])
def test_what_names_no_server_is_refused(modules: dict[str, ModuleType], named: str) -> None:
    with pytest.raises(SystemExit, match="names no server"):
        modules["peer_servers"].parted(named)
