"""Every kernel, compiled for every chip that its case doesn't leave out: no spills, within limits, no worse than kept.

The normal run takes the slice named below, the full one all.
"""

import ast
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import triton
from triton.runtime.jit import JITFunction

from fairstep.kernels import triton as kernels
from fairstep.kernels.report import Row, faults, measuring, read, worse
from fairstep.kernels.triton.ahead import launches_of
from fairstep.kernels.triton.cases import all_cases
from fairstep.kernels.triton.chips import CHIPS

PROCESSES = 2
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
KEPT = RESULTS / f"kernels_{triton.__version__}.jsonl"

CASES = all_cases()
PAIRS = [(case, chip) for case in CASES for chip in CHIPS if chip not in CASES[case].left_out]
PROMISED = [
    (f"attention 32/8x{dim} {dtype}", chip)
    for dim in (64, 128)
    for dtype in ("bf16", "fp16")
    for chip in ("sm80", "sm90", "gfx942")
]
SLICE = {*PROMISED, *((case, "sm90") for case in CASES if not case.endswith("fp16"))}
FULL = [pytest.param(*pair, marks=() if pair in SLICE else pytest.mark.full, id="-".join(pair)) for pair in PAIRS]

Results = dict[tuple[str, str], Future[list[Row]]]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[Results]:
    """All that this run asks for, being compiled in processes of its own."""
    wanted = (getattr(item, "callspec", None) for item in request.session.items if item.path == request.path)
    asked = [call.params for call in wanted if call is not None]
    with measuring(dict.fromkeys((each["case"], each["chip"]) for each in asked), PROCESSES) as begun:
        yield begun


@pytest.fixture(scope="module")
def kept() -> dict[tuple[str, str, str], Row]:
    if not KEPT.exists():
        pytest.skip(f"nothing is kept for triton {triton.__version__}")
    return read(KEPT)


@pytest.mark.parametrize(("case", "chip"), FULL)
def test_it_compiles_within_limits(case: str, chip: str, results: Results) -> None:
    rows = results[case, chip].result()
    assert rows
    assert {row.key: found for row in rows if (found := faults(row, CASES[case]))} == {}
    assert CASES[case].tiles.keys() <= {row.kernel for row in rows}


@pytest.mark.parametrize(("case", "chip"), FULL)
def test_it_is_no_worse_than_kept(
    case: str, chip: str, results: Results, kept: dict[tuple[str, str, str], Row]
) -> None:
    rows = results[case, chip].result()
    assert {row.key for row in rows} == {key for key in kept if key[::2] == (case, chip)}
    assert {row.key: found for row in rows if (found := worse(kept[row.key].figures, row.figures))} == {}


def test_what_is_kept_is_the_table(kept: dict[tuple[str, str, str], Row]) -> None:
    assert {key[::2] for key in kept} == set(PAIRS)


def test_no_promised_chip_is_left_out() -> None:
    assert set(PROMISED) <= set(PAIRS)
    for case in CASES.values():
        assert case.left_out.keys() <= CHIPS.keys()
        assert all(reason for reason in case.left_out.values())


def test_every_kernel_that_is_launched_has_a_case() -> None:
    chip = CHIPS["sm90"]
    calls = [partial(case.call, chip) for case in CASES.values()]
    compiled = {launch.kernel for call in calls for launch in launches_of(call)}
    assert launched_kernels() == compiled


def launched_kernels() -> set[JITFunction]:
    """Kernels that modules of the package launch: name[grid](...)."""
    found = set()
    for path in Path(kernels.__path__[0]).glob("*.py"):
        module = None
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                module = module or import_module(f"{kernels.__name__}.{path.stem}")
                name = ast.unparse(node.func.value)
                if isinstance(kernel := getattr(module, name, None), JITFunction):
                    found.add(kernel)
    return found
