"""Who may import whom, read from the source.

Deciding (fairness, admission, stepping) is pure; kernels stand alone; serving is on top; one file reads the clock.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    **{
        path: ("fairstep", *path.relative_to(ROOT / "engine").parts) for path in sorted((ROOT / "engine").rglob("*.py"))
    },
    **{
        path: ("fairstep.kernels", *path.relative_to(ROOT / "kernels").parts)
        for path in sorted((ROOT / "kernels").rglob("*.py"))
    },
}
PURE = ("fairness", "admission", "stepping")
IMPURE = {"torch", "triton", "asyncio", "anyio", "fastapi", "starlette", "uvicorn", "http", "socket", "threading", "os"}
SHARED = {"request", "door", "errors"}  # values that pure parts may know


def name_of(path: Path) -> str:
    """engine/stepping/plan.py as fairstep.stepping.plan."""
    parts = [part.removesuffix(".py") for part in FILES[path]]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path: Path) -> list[str]:
    name = name_of(path).split(".")
    return name if path.name == "__init__.py" else name[:-1]


def imports_of(path: Path) -> Iterator[str]:
    """Absolute names of all that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = package_of(path)
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def under(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def breaches(paths: list[Path], forbidden: "set[str] | tuple[str, ...]", allowed: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{name_of(path)} imports {name}"
        for path in paths
        for name in imports_of(path)
        if any(under(name, each) for each in forbidden) and not any(under(name, each) for each in allowed)
    ]


def part(folder: str) -> list[Path]:
    return [path for path in FILES if under(name_of(path), f"fairstep.{folder}")]


def test_the_rules_see_the_source() -> None:
    assert len(FILES) > 20
    plan = ROOT / "engine" / "stepping" / "plan.py"
    assert {"dataclasses", "fairstep.door", "fairstep.door.Sampling"} <= set(imports_of(plan))


@pytest.mark.parametrize("folder", PURE)
def test_deciding_is_pure(folder: str) -> None:
    assert breaches(part(folder), {*IMPURE, "time", "numpy"}) == []


@pytest.mark.parametrize("folder", PURE)
def test_deciding_knows_only_shared_values_and_itself(folder: str) -> None:
    allowed = (*(f"fairstep.{name}" for name in SHARED), f"fairstep.{folder}")
    others = breaches(part(folder), {"fairstep"}, allowed)
    assert [breach for breach in others if not breach.endswith(" imports fairstep")] == []  # `from .. import x`


def test_kernels_stand_alone() -> None:
    assert breaches(part("kernels"), {"fairstep"}, ("fairstep.kernels",)) == []


def test_only_serving_imports_serving() -> None:
    below = [path for path in FILES if not under(name_of(path), "fairstep.serving")]
    assert breaches(below, {"fairstep.serving"}) == []


def test_only_the_clock_reads_the_time() -> None:
    others = [path for path in FILES if name_of(path) != "fairstep.clock"]
    assert breaches(others, {"time", "datetime"}) == []


def test_the_front_imports_no_torch() -> None:
    workers = ("fairstep.model", "fairstep.kernels")
    front = [path for path in FILES if not any(under(name_of(path), each) for each in workers)]
    assert breaches(front, {"torch", "triton", "gguf"}) == []


def test_imports_inside_the_package_are_relative() -> None:
    absolute = [
        f"{path.name}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and not node.level and under(node.module or "", "fairstep"))
        or (isinstance(node, ast.Import) and any(under(alias.name, "fairstep") for alias in node.names))
    ]
    assert absolute == []
