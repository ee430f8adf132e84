"""Directed graphs of operations: strongly connected components, and shortest circles in them. Pure.

Written here rather than taken from a graph library: both algorithms are a few lines each, the graphs live for one pass,
and a library of general graphs costs a dependency of several megabytes and an object for each edge.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntFlag
from typing import Final, NamedTuple, TypeAlias


class Dependency(IntFlag):
    """Why one operation is before another."""

    WW = 1
    """It wrote the value before the other's in the log."""
    WR = 2
    """It wrote what the other read."""
    PROCESS = 4
    """Its process ended it before the process started the other."""
    REALTIME = 8
    """It had ended when the other was started."""


class Edge(NamedTuple):
    """What depends on an operation, and why: several reasons are or-ed."""

    target: int
    reasons: Dependency


Graph: TypeAlias = Mapping[int, Sequence[Edge]]
"""The edges from each vertex that has some."""

_NO_EDGES: Final[Sequence[Edge]] = ()


def components(graph: Graph, allowed: Dependency) -> Iterator[list[int]]:
    """Yield the strongly connected components of two vertices or more, by edges of these kinds (Tarjan).

    Keeps a stack of its own: a component may be as large as the history.
    """
    indexes: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_vertices: list[int] = []
    is_open: set[int] = set()
    for root in graph:
        if root in indexes:
            continue
        path: list[tuple[int, Iterator[Edge]]] = [(root, iter(graph[root]))]
        indexes[root] = lowest[root] = len(indexes)
        open_vertices.append(root)
        is_open.add(root)
        while path:
            vertex, edges = path[-1]
            target = next((edge.target for edge in edges if edge.reasons & allowed), None)
            if target is None:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[vertex])
                if lowest[vertex] == indexes[vertex]:
                    component = _pop_until(open_vertices, vertex)
                    is_open.difference_update(component)
                    if len(component) > 1:
                        yield component
            elif target not in indexes:
                indexes[target] = lowest[target] = len(indexes)
                open_vertices.append(target)
                is_open.add(target)
                path.append((target, iter(graph.get(target, _NO_EDGES))))
            elif target in is_open:
                lowest[vertex] = min(lowest[vertex], indexes[target])


def _pop_until(vertices: list[int], last: int) -> list[int]:
    popped = []
    while True:
        popped.append(vertices.pop())
        if popped[-1] == last:
            return popped


def shortest_circle(
    graph: Graph, component: Iterable[int], allowed: Dependency, required: Dependency, tries: int
) -> list[int] | None:
    """Return the vertices of a shortest circle in a component, by edges of which one at least has a required kind.

    Begins at ``tries`` edges of that kind at most. Returns None if it found none.
    """
    members = frozenset(component)
    best: list[int] | None = None
    for vertex in sorted(members):
        for edge in graph.get(vertex, _NO_EDGES):
            if not edge.reasons & required or edge.target not in members:
                continue
            if tries == 0:
                return best
            tries -= 1
            way = _shortest_way(graph, edge.target, vertex, lambda e: bool(e.reasons & allowed) and e.target in members)
            if way is not None and (best is None or len(way) < len(best)):
                best = way
    return best


def _shortest_way(graph: Graph, start: int, goal: int, passes: Callable[[Edge], bool]) -> list[int] | None:
    """Return the vertices from one to another, both included; breadth first."""
    before: dict[int, int] = {start: start}
    queue = deque([start])
    while queue:
        vertex = queue.popleft()
        if vertex == goal:
            way = [goal]
            while way[-1] != start:
                way.append(before[way[-1]])
            return way[::-1]
        for edge in graph.get(vertex, _NO_EDGES):
            if passes(edge) and edge.target not in before:
                before[edge.target] = vertex
                queue.append(edge.target)
    return None
