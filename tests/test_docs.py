"""The pages keep up with the source."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def modules() -> set[str]:
    engine = {path.relative_to(ROOT / "engine").as_posix() for path in (ROOT / "engine").rglob("*.py")}
    kernels = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kernels").rglob("*.py")}
    return {name for name in engine | kernels if not name.endswith("__init__.py")}


def test_the_architecture_page_names_every_module_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z0-9_/]+\.py)`", page)) - {"setup.py", "tests/test_import_rules.py"} == modules()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = set(re.findall(r'"([a-z0-9-]+)>=', project))
    assert {name for name in named if not re.search(rf"\b{name}\b", page)} == set()
