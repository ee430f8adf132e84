"""``import oncelog`` has every name that programs need: documents and annotations name only these."""

import ast
import builtins
import re
from typing import Final

import pytest

import oncelog
from oncelog.clients import errors
from oncelog.clients.consumer import consumer_errors
from tests.processes import REPOSITORY
from tests.tidy.public_annotations import classes_behind, names_in_docstrings

DOCUMENTS: Final = sorted(
    [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").glob("*.py")]
)
IMPORT: Final = re.compile(r"^ *(?:from (oncelog[\w.]*) import ([^\n(]+)|import (oncelog\.[\w.]+))", re.MULTILINE)
PUBLIC: Final = [getattr(oncelog, name) for name in oncelog.__all__]
ERRORS: Final = [
    each
    for module in (errors, consumer_errors)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, errors.ClientError)
]

KAFKAS: Final = frozenset({"ConsumerRebalanceListener"})
"""Classes of Apache Kafka that docstrings refer to."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_document_imports_public_names_of_oncelog_only(path: object) -> None:
    text = (REPOSITORY / str(path)).read_text()
    for module, names, bare in IMPORT.findall(text):
        assert module == "oncelog", f"import from oncelog: {names or bare}"
        assert {name.strip() for name in names.split(",")} <= set(oncelog.__all__)


def test_classes_in_annotations_of_public_names_are_public() -> None:
    missing = {kind.__name__ for kind in classes_behind(PUBLIC)} - set(oncelog.__all__)
    assert sorted(missing) == []


def test_errors_of_clients_are_public() -> None:
    assert sorted({each.__name__ for each in ERRORS} - set(oncelog.__all__)) == []


def test_classes_in_docstrings_of_public_names_are_public() -> None:
    quoted = {name for each in PUBLIC if isinstance(each, type) for name in names_in_docstrings(each)}
    assert sorted(quoted - vars(builtins).keys() - KAFKAS - set(oncelog.__all__)) == []


def test_reference_page_names_public_errors_only() -> None:
    """The names in its tables of errors, which programs catch."""
    page = (REPOSITORY / "docs" / "reference" / "python-client.md").read_text()
    named = set(re.findall(r"`([A-Z]\w+[a-z])`", "".join(re.findall(r"^\|.*\|$", page, re.MULTILINE))))
    assert len(named) > 10
    assert sorted(named - set(oncelog.__all__)) == []


def test_static_and_loaded_names_are_the_same() -> None:
    """A type checker sees the imports, a program the table, and both the list."""
    tree = ast.parse((REPOSITORY / "oncelog" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == oncelog._MODULE_OF  # type: ignore[attr-defined]
    assert sorted(oncelog.__all__) == sorted([*imported, "__version__"])
