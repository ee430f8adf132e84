"""``docs/internals/invariants.md`` names tests that exist, and the table of mutations takes away what is there."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.mutations.table import MUTATIONS, Mutation

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
PAGE: Final = (REPOSITORY / "docs" / "internals" / "invariants.md").read_text()
LAST_ROW: Final = 145
TRANSACTION_ROWS: Final = frozenset({*(f"B{number:02}" for number in range(1, 36)), "B75"})
"""Hanging transactions, epochs, fencing, and what clients make of an abort."""


class Row(NamedTuple):
    """A line of the table."""

    name: str
    tests: list[str]
    waits_for: str


def rows() -> list[Row]:
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if re.match(r"\| B\d", line)]
    assert {len(cells) for cells in lines} == {5}
    return [Row(cells[0].strip(), re.findall(r"`([^`]+)`", cells[3]), cells[4].strip()) for cells in lines]


@cache
def names_in(path: Path) -> frozenset[str]:
    """The functions, classes and constants of a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(names)


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    file = REPOSITORY / path
    return (
        file.name.startswith("test_")
        and file.is_file()
        and name.startswith(("test_", "Test"))
        and name in names_in(file)
    )


def test_invariants_are_numbered_without_gaps_or_repetition() -> None:
    assert [row.name for row in rows()] == [f"B{number:02}" for number in range(1, LAST_ROW + 1)]


def test_tests_named_by_invariants_exist() -> None:
    named = {test for row in rows() for test in row.tests}
    assert not sorted(test for test in named if not exists(test))


def test_invariants_have_a_test_or_a_reason() -> None:
    reasons = set(re.findall(r"^\* \*(.+?)\*:", PAGE, re.MULTILINE))
    for row in rows():
        assert row.tests or row.waits_for, f"{row.name} has neither"
        assert not row.waits_for or row.waits_for in reasons, f"{row.name} waits for what the page does not explain"


def test_invariants_of_transactions_are_held_and_have_a_mutation() -> None:
    mutated = {mutation.row for mutation in MUTATIONS}
    for row in rows():
        if row.name in TRANSACTION_ROWS:
            assert row.tests, f"{row.name} has no test"
            assert not row.waits_for, f"{row.name} waits for {row.waits_for}"
            assert row.name in mutated, f"nothing shows that the tests of {row.name} would notice"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.row} in {mutation.path}")
def test_mutations_can_all_be_made(mutation: Mutation) -> None:
    """Its text is in the file once, leaves a program, and the page names the test that must notice it for its row."""
    source = (REPOSITORY / mutation.path).read_text()
    assert source.count(mutation.old) == 1
    assert mutation.old != mutation.new
    ast.parse(source.replace(mutation.old, mutation.new))
    (tests,) = (row.tests for row in rows() if row.name == mutation.row)
    assert mutation.test in tests
