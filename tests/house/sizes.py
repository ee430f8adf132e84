"""Files, functions and classes that are too large to be read at once.

Lines are counted as they stand, comments and docstrings included; a function's from ``def`` to its end. Parameters
count without ``self`` and ``cls``, keyword-only ones and ``*args`` included. Methods are the functions in the body of a
class, each name once: properties and special methods too, inherited ones not.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.house.sources import Function, Source, functions


class Sized(NamedTuple):
    """Something with its size, as ``path:line name``."""

    size: int
    place: str


def long_files(sources: Iterable[Source], limit: int) -> list[Sized]:
    """Return the files of more than ``limit`` lines, longest first."""
    return _above(limit, (Sized(source.text.count("\n"), source.path) for source in sources))


def long_functions(sources: Iterable[Source], limit: int) -> list[Sized]:
    """Return the functions of more than ``limit`` lines, longest first."""
    return _above(limit, _measured(sources, lambda node: (node.end_lineno or node.lineno) - node.lineno + 1))


def many_parameters(sources: Iterable[Source], limit: int) -> list[Sized]:
    """Return the functions of more than ``limit`` parameters, those with most first."""
    return _above(limit, _measured(sources, parameter_count))


def many_methods(sources: Iterable[Source], limit: int) -> list[Sized]:
    """Return the classes of more than ``limit`` methods, those with most first."""
    return _above(
        limit,
        (
            Sized(len({each.name for each in node.body if isinstance(each, Function)}), _place(source, node))
            for source in sources
            for node in ast.walk(source.tree)
            if isinstance(node, ast.ClassDef)
        ),
    )


def parameter_count(node: Function) -> int:
    """Return the number of parameters that a caller has to know of."""
    given = node.args
    named = [*given.posonlyargs, *given.args]
    if named and named[0].arg in ("self", "cls", "mcs"):
        del named[0]
    return len(named) + len(given.kwonlyargs) + (given.vararg is not None) + (given.kwarg is not None)


def _measured(sources: Iterable[Source], size: Callable[[Function], int]) -> Iterator[Sized]:
    return (Sized(size(node), _place(source, node)) for source in sources for node in functions(source))


def _above(limit: int, measured: Iterable[Sized]) -> list[Sized]:
    return sorted((each for each in measured if each.size > limit), key=lambda each: (-each.size, each.place))


def _place(source: Source, node: Function | ast.ClassDef) -> str:
    return f"{source.path}:{node.lineno} {node.name}"
