"""Rules of the house that no linter knows."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("protocol", "coordinator", "broker", "clients", "spark_connector")
LONGEST_FILE = 600
LONGEST_FUNCTION = 70
ONE_IMPORTER = {"uvloop", "aiofiles"}


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return [REPOSITORY / name for name in listed.split("\n") if name.endswith(suffixes)]


SOURCES = [path for path in tracked(".py") if path.relative_to(REPOSITORY).parts[0] in PACKAGES]


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in SOURCES:
        yield path, ast.parse(path.read_text())


def imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_modules_open_with_a_docstring() -> None:
    missing = [str(path) for path, tree in trees() if tree.body and not ast.get_docstring(tree)]
    assert not missing


def test_files_and_functions_stay_readable() -> None:
    long = [str(path) for path in SOURCES if path.read_text().count("\n") > LONGEST_FILE]
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > LONGEST_FUNCTION:
                    long.append(f"{path}:{node.name} {size}")
    assert not long


@pytest.mark.parametrize("library", sorted(ONE_IMPORTER))
def test_outside_seams_are_imported_in_one_file_each(library: str) -> None:
    importers = [str(path) for path, tree in trees() if library in imported_modules(tree)]
    assert len(importers) <= 1, importers


def test_kazoo_is_imported_only_in_files_named_after_it() -> None:
    importers = {path.stem for path, tree in trees() if "kazoo" in imported_modules(tree)}
    assert importers == {"kazoo_client", "kazoo_encodings", "kazoo_factory", "kazoo_handshake", "kazoo_login"}


def test_file_names_say_what_is_inside() -> None:
    banned = {"utils", "helpers", "common", "base", "core", "service"}
    assert not [str(path) for path in SOURCES if path.stem in banned]


def test_comments_leave_nothing_to_do() -> None:
    mark = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert not [str(path) for path in SOURCES if mark.search(path.read_text())]


def test_apis_have_one_file_on_both_sides() -> None:
    """Every handler has a message file of the same name; files beside them that several handlers share have none."""
    files = (REPOSITORY / "broker/handlers").glob("*.py")
    handlers = {path.stem for path in files if "@handles(" in path.read_text()}
    messages = {path.stem for path in (REPOSITORY / "protocol/messages").glob("*.py")}
    assert handlers <= messages, handlers - messages


def test_production_code_never_asks_whether_it_is_under_test() -> None:
    assert not [str(path) for path in SOURCES if "PYTEST" in path.read_text()]


def test_modules_of_tests_are_in_known_folders() -> None:
    folders = {
        "unit",
        "scenarios",
        "conformance",
        "simulation",
        "chaos",
        "integration",
        "interop",
        "tidy",
        "spark",
        "cluster",
    }
    stray = [
        str(path)
        for path in tracked(".py")
        if path.name.startswith("test_") and path.relative_to(REPOSITORY).parts[:1] == ("tests",)
        and path.relative_to(REPOSITORY).parts[1] not in folders
    ]  # fmt: skip
    assert not stray
