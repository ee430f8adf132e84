"""The walks through the code name functions that exist, and are short; other tests see them called."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.walks import REPLICA_FETCH, SPARK_ROW, TRANSACTION, read_walks
from tests.processes import REPOSITORY

MOST_STOPS = 15


def functions(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield the qualified names of a module's functions and methods."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name


def test_page_has_three_walks() -> None:
    assert list(read_walks()) == [TRANSACTION, REPLICA_FETCH, SPARK_ROW]


@pytest.mark.parametrize("walk", [TRANSACTION, REPLICA_FETCH, SPARK_ROW])
def test_walk_has_few_stops_that_are_numbered_in_order(walk: str) -> None:
    numbers = [entry.number for entry in read_walks()[walk]]
    assert 1 < len(numbers) <= MOST_STOPS
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("walk", [TRANSACTION, REPLICA_FETCH, SPARK_ROW])
def test_walk_names_functions_that_exist(walk: str) -> None:
    stops = [entry.stop for entry in read_walks()[walk]]
    found = {file: set(functions(ast.parse((REPOSITORY / file).read_text()).body)) for file, _ in stops}
    assert [stop for stop in stops if stop.function not in found[stop.file]] == []


@pytest.mark.parametrize("walk", [TRANSACTION, REPLICA_FETCH, SPARK_ROW])
def test_stop_is_described_in_one_sentence(walk: str) -> None:
    assert [entry for entry in read_walks()[walk] if ". " in entry.sentence] == []
