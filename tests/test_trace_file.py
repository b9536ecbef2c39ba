"""trace_file.py: CSV traces as people have them, and what is wrong with the others."""

from pathlib import Path

import pytest

from fairstep.errors import ConfigError
from fairstep.simulation.trace_file import read_trace


def write(folder: Path, text: str) -> Path:
    path = folder / "some.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_remarks_and_other_columns_are_left_out(tmp_path: Path) -> None:
    text = (
        "# Source: somewhere\n# Licence: free\narrival_s,input_tokens,output_tokens,kind\n0.5,374,44,x\n\n0.1,91,0,y\n"
    )
    trace = read_trace(write(tmp_path, text))
    assert trace.name == "some" and trace.until is None
    assert [(each.at, each.prompt_tokens, each.outputs) for each in trace.arrivals] == [(0.1, 91, 1), (0.5, 374, 44)]


def test_clients_and_reusable_prefixes_are_tenants_and_shared_tokens(tmp_path: Path) -> None:
    text = "arrival_s,input_tokens,output_tokens,client,reusable_prefix_tokens\n0,600,5,7,512\n1,10,5,8,512\n"
    one, other = read_trace(write(tmp_path, text)).arrivals
    assert (one.tenant, one.shared, other.tenant, other.shared) == ("7", 512, "8", 10)


def test_all_columns_are_read(tmp_path: Path) -> None:
    text = (
        "arrival_s,input_tokens,output_tokens,tenant,max_tokens,priority,deadline_s,ttft_deadline_s,cancel_s\n"
        "1,2,3,A,4,5,6,0.5,8\n1,2,3,,,,,,\n"
    )
    full, bare = read_trace(write(tmp_path, text)).arrivals
    assert (full.tenant, full.max_tokens, full.priority, full.deadline, full.ttft_deadline, full.cancel) == (
        *("A", 4, 5),
        *(6.0, 0.5, 8.0),
    )
    assert (bare.tenant, bare.max_tokens, bare.priority, bare.deadline) == ("anonymous", None, 0, None)


def test_a_rate_draws_arrivals_where_the_file_has_none(tmp_path: Path) -> None:
    path = write(tmp_path, "arrival_s,input_tokens,output_tokens\n" + ",100,10\n" * 200)
    trace = read_trace(path, rate=4.0, seed=1)
    assert trace == read_trace(path, rate=4.0, seed=1) != read_trace(path, rate=4.0, seed=2)
    assert 30 < trace.span < 80
    assert len(read_trace(path, rate=4.0, most=7).arrivals) == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arrival_s,output_tokens\n1,2\n", "no column input_tokens"),
        ("arrival_s,input_tokens,output_tokens\n,1,2\n", "line 2: no arrival_s; give a rate"),
        ("# r\narrival_s,input_tokens,output_tokens\n1,1,2\n1,many,2\n", "line 4: input_tokens must be a number"),
        ("arrival_s,input_tokens,output_tokens\n-1,1,2\n", "line 2: arrival_s must be a number from 0, not '-1'"),
        ("arrival_s,input_tokens,output_tokens\nnan,1,2\n", "arrival_s must be a number"),
        ("arrival_s,input_tokens,output_tokens\n", "holds no requests"),
        ("", "no column input_tokens, output_tokens"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_trace(write(tmp_path, text))
    assert said in str(caught.value) and "some.csv" in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
