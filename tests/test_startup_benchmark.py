"""The start-up benchmark runs, and ends in one JSON line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

STARTUP = Path(__file__).resolve().parent.parent / "benchmarks" / "startup.py"


@pytest.mark.real
@pytest.mark.full
def test_a_smoke_run_ends_in_a_row_of_figures() -> None:
    done = subprocess.run([sys.executable, str(STARTUP), "--smoke"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["benchmark"] == "startup"
    assert row["seconds"]["total"] >= row["seconds"]["weights"] > 0
    assert row["peak_pss_mib"]["serving"] > 100
    assert row["versions"]["torch"]
