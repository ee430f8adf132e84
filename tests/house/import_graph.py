"""Which file imports which, and the circles in it.

An import counts wherever it stands: at the top, inside a function, or under ``TYPE_CHECKING``, which hides a circle
from the interpreter and not from a reader. ``from package import name`` leads to the module ``package.name`` if it
exists, otherwise to the package.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from tests.house.sources import Source, canonical

Graph: TypeAlias = Mapping[str, frozenset[str]]
"""From a node to those that it has an arrow to."""


def import_graph(sources: Iterable[Source]) -> Graph:
    """Return the modules of the product that each module imports."""
    sources = list(sources)
    names = frozenset(source.name for source in sources)
    return {source.name: frozenset(_imported(source, names)) - {source.name} for source in sources}


def _imported(source: Source, names: frozenset[str]) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from names.intersection(canonical(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = canonical(_absolute(source, node))
            for alias in node.names:
                module = canonical(f"{package}.{alias.name}")
                yield from names.intersection({module if module in names else package})


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    """Return the full name of what stands between ``from`` and ``import``."""
    if not node.level:
        return node.module or ""
    parts = source.name.split(".")
    depth = len(parts) - node.level + source.is_package
    return ".".join([*parts[:depth], *filter(None, [node.module])])


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of two nodes or more, largest first: Tarjan's algorithm, iterated."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []
    for start in graph:
        work = [] if start in order else [(start, iter(sorted(graph[start])))]
        while work:
            node, targets = work[-1]
            if node not in order:
                order[node] = lowest[node] = len(order)
                path.append(node)
            target = next(targets, None)
            if target is None:
                work.pop()
                if lowest[node] == order[node]:
                    component = path[path.index(node) :]
                    del path[-len(component) :]
                    lowest.update(dict.fromkeys(component, len(graph)))  # Closed: no way leads back into it.
                    found.append(sorted(component))
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
            elif target not in order:
                work.append((target, iter(sorted(graph[target]))))
            else:
                lowest[node] = min(lowest[node], order[target] if target in path else len(graph))
    return sorted((circle for circle in found if len(circle) > 1), key=lambda circle: (-len(circle), circle))
