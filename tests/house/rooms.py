"""Rooms and the arrows between them.

A room is what a reader meets on opening the folder of a package: a folder with modules in it (``broker/storage``), or a
module that lies loose in a top-level package (``broker/dispatch.py``). A top-level package itself is the door and no
room. An arrow leads from a room to another if any of its files imports one of the other's.

The upward arrows are the fewest that would have to go for the rest to have one direction, whatever order the rooms are
put into: zero if and only if there are no circles. Which ones are named is one smallest choice out of several. The same
is counted of files and their imports.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from tests.house.import_graph import Graph, circles
from tests.house.sources import FACADE, Source

Arrow: TypeAlias = tuple[str, str]

_MOST_UPWARD: Final = 30
"""The search doubles its work several times for each; a house with more needs no exact number."""


def room_of(source: Source) -> str | None:
    """Return the room of a file, or None if it is a door."""
    parts = source.path.removesuffix(".py").split("/")
    if len(parts) == 2:
        return None if source.is_package or parts[0] == FACADE else ".".join(parts)
    return ".".join(parts[:-1])


def room_graph(sources: Iterable[Source], imports: Graph) -> Graph:
    """Return the rooms that each room has arrows to."""
    room = {source.name: room_of(source) for source in sources}
    arrows = {(room[a], room[b]) for a, targets in imports.items() for b in targets}
    rooms = sorted(name for name in set(room.values()) if name is not None)
    return {a: frozenset(b for b in rooms if (a, b) in arrows and a != b) for a in rooms}


def within(graph: Graph, package: str) -> Graph:
    """Return the part of a graph that lies in one top-level package."""
    inside = {node for node in graph if node.partition(".")[0] == package}
    return {node: targets & inside for node, targets in graph.items() if node in inside}


def arrow_count(graph: Graph) -> int:
    """Return the number of arrows."""
    return sum(map(len, graph.values()))


def upward_arrows(graph: Graph) -> list[Arrow]:
    """Return a smallest set of arrows without which the graph has no circles."""
    return sorted(arrow for members in circles(graph) for arrow in _upward_among(graph, members))


def _upward_among(graph: Graph, members: Sequence[str]) -> list[Arrow]:
    """Return them for nodes that all reach each other.

    Every circle must lose an arrow, so the search takes each arrow of a shortest circle away in turn, and allows one
    arrow more whenever no choice was enough.
    """
    for limit in range(_MOST_UPWARD):
        removed = _break_circles({node: set(graph[node].intersection(members)) for node in members}, limit)
        if removed is not None:
            return removed
    raise ValueError(f"more than {_MOST_UPWARD} arrows lead upward")


def _break_circles(graph: dict[str, set[str]], limit: int) -> list[Arrow] | None:
    circle = _shortest_circle(graph)
    if not circle:
        return []
    if limit == 0:
        return None
    for a, b in zip(circle, [*circle[1:], circle[0]], strict=True):
        graph[a].remove(b)
        rest = _break_circles(graph, limit - 1)
        graph[a].add(b)
        if rest is not None:
            return [(a, b), *rest]
    return None


def _shortest_circle(graph: dict[str, set[str]]) -> Sequence[str]:
    """Return the nodes of a shortest circle in order; empty if there is none."""
    best: Sequence[str] = ()
    for start in sorted(graph):
        circle = _way(graph, start, start)
        if circle and (not best or len(circle) < len(best)):
            best = circle
            if len(best) == 2:
                break
    return best


def _way(graph: dict[str, set[str]], start: str, end: str) -> Sequence[str]:
    """Return a shortest way from ``start`` along at least one arrow to ``end``, without ``end`` itself."""
    ways: deque[tuple[str, ...]] = deque([(start,)])
    seen = set()
    while ways:
        way = ways.popleft()
        for target in sorted(graph[way[-1]]):
            if target == end:
                return way
            if target not in seen:
                seen.add(target)
                ways.append((*way, target))
    return ()
