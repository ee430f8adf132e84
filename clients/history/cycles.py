"""Pass D: operations that depend on each other in a circle.

Vertices are operations. Edges are what the values show (``wr``: it wrote what the other read; ``ww``: it wrote the
value before the other's, if the caller wants writers to count as isolated) and what the clocks show (successive
operations of one process, and operations that had ended when others were started). There are no anti-dependencies: a
consumer does not read the newest record, so that what it has not read says nothing.

Most histories need no search. Operations are numbered by their start, so that edges of time lead to higher numbers
only; a circle must have an edge of values that leads back, and lies within the numbers that such edges span.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from oncelog.clients.history.anomaly import Anomaly, AnomalyKind
from oncelog.clients.history.evidence import Evidence
from oncelog.clients.history.graph import Dependency, Edge, components, shortest_circle
from oncelog.clients.history.operation import Operation, Read

_TRIES: Final = 1_000
"""Edges of a component at which the search for its shortest circle begins."""


class _Level(NamedTuple):
    """A kind of circle: which edges it may have, and of which it must have one."""

    kind: AnomalyKind
    allowed: Dependency
    required: Dependency


_WRITES: Final = Dependency.WW
_VALUES: Final = Dependency.WW | Dependency.WR
_PROCESS: Final = Dependency.PROCESS
_TIME: Final = Dependency.PROCESS | Dependency.REALTIME

_LEVELS: Final = (
    _Level(AnomalyKind.G0, _WRITES, _WRITES),
    _Level(AnomalyKind.G1C, _VALUES, Dependency.WR),
    _Level(AnomalyKind.G0_PROCESS, _WRITES | _PROCESS, _WRITES),
    _Level(AnomalyKind.G1C_PROCESS, _VALUES | _PROCESS, Dependency.WR),
    _Level(AnomalyKind.G0_REALTIME, _WRITES | _TIME, _WRITES),
    _Level(AnomalyKind.G1C_REALTIME, _VALUES | _TIME, Dependency.WR),
)
"""From the strongest to the weakest: a component is reported at the first level that has a circle."""


def check_cycles(evidence: Evidence, *, infer_ww: bool = False) -> Iterator[Anomaly]:
    """Find circles; of each component that has any, a shortest one of the strongest kind."""
    values = _value_edges(evidence, infer_ww)
    spans = _spans((target, source) for source, target in values if target < source)
    if not spans:
        return
    operations = evidence.history.operations
    edges: dict[tuple[int, int], Dependency] = defaultdict(lambda: Dependency(0))
    for edge, reason in values.items():
        edges[edge] |= reason
    for first, last in spans:
        window = operations[first : last + 1]
        for edge in _process_edges(window):
            edges[edge] |= Dependency.PROCESS
        for edge in _realtime_edges(window):
            edges[edge] |= Dependency.REALTIME
    graph: dict[int, list[Edge]] = defaultdict(list)
    inside = {number for first, last in spans for number in range(first, last + 1)}
    for (source, target), reasons in edges.items():
        if source in inside and target in inside:
            graph[source].append(Edge(target, reasons))
    yield from _circles(dict(graph), operations)


def _circles(graph: Mapping[int, Sequence[Edge]], operations: Sequence[Operation]) -> Iterator[Anomaly]:
    reported: set[int] = set()
    for level in _LEVELS:
        for component in components(graph, level.allowed):
            if reported.isdisjoint(component):
                circle = shortest_circle(graph, component, level.allowed, level.required, _TRIES)
                if circle is not None:
                    reported.update(component)
                    yield _describe(level, graph, circle, operations)


def _describe(
    level: _Level, graph: Mapping[int, Sequence[Edge]], circle: list[int], operations: Sequence[Operation]
) -> Anomaly:
    steps = []
    for source, target in zip(circle, [*circle[1:], circle[0]], strict=True):
        reasons = next(edge.reasons for edge in graph[source] if edge.target == target) & level.allowed
        name = "+".join(reason.name.lower() for reason in Dependency if reason in reasons and reason.name is not None)
        steps.append(f"{operations[source].process} -{name}->")
    text = f"{' '.join(steps)} {operations[circle[0]].process}"
    return Anomaly(level.kind, text, tuple(operations[number] for number in circle))


def _value_edges(evidence: Evidence, infer_ww: bool) -> dict[tuple[int, int], Dependency]:
    """Return the edges (earlier, later) that reads prove, and those of the version order if they are wanted."""
    edges: dict[tuple[int, int], Dependency] = {}
    for operation in evidence.history.operations:
        for read in operation.reads:
            write = evidence.writer(read)
            if write is not None and write.operation is not operation:
                edges[write.operation.number, operation.number] = Dependency.WR
    if infer_ww:
        for partition, order in evidence.orders.items():
            reads = (Read(partition, offset, order.value(index)) for index, offset in enumerate(order.offsets))
            writers = [write.operation.number for write in map(evidence.writer, reads) if write is not None]
            for edge in pairwise(writers):
                if edge[0] != edge[1]:
                    edges[edge] = edges.get(edge, Dependency(0)) | Dependency.WW
    return edges


def _spans(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of intervals of numbers, both ends included."""
    union: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if union and first <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], last)
        else:
            union.append((first, last))
    return union


def _process_edges(window: Iterable[Operation]) -> Iterator[tuple[int, int]]:
    last: dict[str, Operation] = {}
    for operation in window:
        before = last.get(operation.process)
        if before is not None and before.end is not None and before.end <= operation.start:
            yield before.number, operation.number
        last[operation.process] = operation


def _realtime_edges(window: Sequence[Operation]) -> Iterator[tuple[int, int]]:
    """Yield (A, B) where A had ended before B was started, without those that follow from others.

    The frontier are the operations that have ended, and after which none was both started and ended: as many as were
    under way at once.
    """
    ends = sorted((operation for operation in window if operation.end is not None), key=lambda each: each.end or 0)
    frontier: dict[int, Operation] = {}
    ended = 0
    for operation in window:
        while ended < len(ends) and (end := ends[ended].end) is not None and end < operation.start:
            newest = ends[ended]
            frontier = {
                number: each for number, each in frontier.items() if each.end is None or each.end >= newest.start
            }
            frontier[newest.number] = newest
            ended += 1
        for number in frontier:
            yield number, operation.number
