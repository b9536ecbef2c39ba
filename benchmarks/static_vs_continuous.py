"""Static against continuous batches: the same model, requests and instants by each rule. As `fairstep bench`.

The row has besides where and with what its figures were taken.
"""

import os
from pathlib import Path
from typing import Any

import click

from fairstep.serving.bench_command import Job, run_bench
from fairstep.serving.bench_options import bench_options
from report import emit


@click.command()
@click.argument("model", default="smollm2")
@bench_options
def compare(plot: Path | None, **asked: Any) -> None:
    """Print a table, end in one JSON line."""
    busy_before = os.getloadavg()[0]
    emit("static_vs_continuous", {**run_bench(Job(**asked), plot), "load_before": busy_before})


def main() -> None:
    compare()


if __name__ == "__main__":
    main()
