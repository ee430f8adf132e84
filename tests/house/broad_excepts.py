"""Clauses that catch every exception, outside dispatch.

``except Exception``, ``except BaseException`` (alone, in a tuple, or with ``except*``), a bare ``except``, and
``suppress`` of either. Dispatch, the file ``dispatcher.py`` (formerly ``dispatch.py``), is where an unexpected
exception of a request ends, and may.
A clause whose last statement is a bare ``raise`` only tidies up; it counts, and is marked.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tests.house.sources import Source

_DISPATCH: Final = frozenset({"dispatch", "dispatcher"})
_BROAD: Final = frozenset({"Exception", "BaseException"})


class BroadExcept(NamedTuple):
    """Where everything is caught."""

    path: str
    line: int
    raises_again: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" + (" (raises again)" if self.raises_again else "")


def broad_excepts(sources: Iterable[Source]) -> list[BroadExcept]:
    """Return the clauses in the order of their places."""
    return [
        each for source in sources if source.name.rpartition(".")[2] not in _DISPATCH for each in _in_source(source)
    ]  # fmt: skip


def _in_source(source: Source) -> Iterator[BroadExcept]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and (node.type is None or _is_broad(node.type)):
            last = node.body[-1]
            yield BroadExcept(source.path, node.lineno, isinstance(last, ast.Raise) and last.exc is None)
        elif isinstance(node, ast.Call) and _name(node.func) == "suppress" and any(map(_is_broad, node.args)):
            yield BroadExcept(source.path, node.lineno, False)


def _is_broad(node: ast.expr) -> bool:
    return any(map(_is_broad, node.elts)) if isinstance(node, ast.Tuple) else _name(node) in _BROAD


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
