"""What pages name exists: files and targets of make; every example is in README and run; the picture is complete."""

import re
import tomllib
from typing import Final

import pytest

from tests.processes import REPOSITORY

PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    ".github/pull_request_template.md",
    ".github/ISSUE_TEMPLATE/bug.md",
    ".github/ISSUE_TEMPLATE/feature.md",
    *sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "docs").rglob("*.md")),
)
FOLDERS: Final = "broker|clients|coordinator|deploy|docs|examples|protocol|pyspark_oncelog|spark_connector|tests"
TARGETS: Final = frozenset(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))


def exists(name: str, page: str) -> bool:
    """Return whether a file is there, seen from the root of the repository or, as a link, from the page."""
    return (REPOSITORY / name).exists() or (REPOSITORY / page).parent.joinpath(name).exists()


@pytest.mark.parametrize("page", PAGES)
def test_page_names_only_files_and_targets_that_exist(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    files = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text) + re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text)
    targets = re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    assert [name for name in files if not exists(name, page)] == []
    assert [name for name in targets if name not in TARGETS] == []


def test_readme_names_every_example() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    examples = sorted(path.name for path in (REPOSITORY / "examples").glob("*.py"))
    assert [name for name in examples if f"(examples/{name})" not in readme] == []


def test_examples_are_all_run_by_a_test() -> None:
    tests = [REPOSITORY / folder / "test_examples.py" for folder in ("tests/integration", "tests/spark")]
    text = "".join(path.read_text() for path in tests)
    assert [path.name for path in (REPOSITORY / "examples").glob("*.py") if f'"{path.name}"' not in text] == []


def test_picture_of_the_broker_has_every_package_of_the_layers_contract() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["oncelog.broker"])
    names = [name for layer in layers for name in re.findall(r"\w+", layer) if (REPOSITORY / "broker" / name).is_dir()]
    page = (REPOSITORY / "docs" / "explanation" / "architecture.md").read_text()
    assert len(names) > 10
    assert [name for name in names if f"<b>{name}</b>" not in page] == []
