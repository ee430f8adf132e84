"""Components and shortest circles, compared with what reachability says of random graphs."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.clients.history.graph import Dependency, Edge, components, shortest_circle

WW, WR, PROCESS = Dependency.WW, Dependency.WR, Dependency.PROCESS
VERTICES = st.integers(0, 7)
EDGES = st.lists(st.tuples(VERTICES, VERTICES, st.sampled_from([WW, WR, PROCESS, WW | WR])), max_size=24)
LONG = 50_000


def graph_of(edges: list[tuple[int, int, Dependency]]) -> dict[int, list[Edge]]:
    graph: dict[int, list[Edge]] = {}
    for source, target, reasons in edges:
        graph.setdefault(source, []).append(Edge(target, reasons))
    return graph


def reachable(graph: dict[int, list[Edge]], start: int, allowed: Dependency) -> set[int]:
    found: set[int] = set()
    left = [start]
    while left:
        for edge in graph.get(left.pop(), []):
            if edge.reasons & allowed and edge.target not in found:
                found.add(edge.target)
                left.append(edge.target)
    return found


@given(EDGES, st.sampled_from([WW, WW | WR, WW | WR | PROCESS]))
def test_components_are_the_vertices_that_reach_each_other(
    edges: list[tuple[int, int, Dependency]], allowed: Dependency
) -> None:
    graph = graph_of(edges)
    reach = {vertex: reachable(graph, vertex, allowed) for vertex in range(8)}
    expected = {
        frozenset(other for other in reach if other == vertex or (other in reach[vertex] and vertex in reach[other]))
        for vertex in reach
    }
    found = [frozenset(component) for component in components(graph, allowed)]
    assert sorted(map(sorted, found)) == sorted(sorted(each) for each in expected if len(each) > 1)


@given(EDGES)
def test_shortest_circle_follows_edges_and_has_one_of_the_required_kind(
    edges: list[tuple[int, int, Dependency]],
) -> None:
    graph = graph_of(edges)
    for component in components(graph, WW | WR):
        inner = {(s, t) for s, t, reasons in edges if reasons & (WW | WR) and {s, t} <= set(component)}
        required = {(s, t) for s, t, reasons in edges if reasons & WR and (s, t) in inner and s != t}
        circle = shortest_circle(graph, component, WW | WR, WR, tries=100)
        assert (circle is not None) >= bool(required)
        if circle is not None:
            steps = set(zip(circle, [*circle[1:], circle[0]], strict=True))
            assert steps <= inner
            assert any(reasons & WR and (s, t) in steps for s, t, reasons in edges)


def test_component_as_large_as_the_history_needs_no_recursion() -> None:
    graph = {number: [Edge((number + 1) % LONG, WR)] for number in range(LONG)}
    assert [len(component) for component in components(graph, WR)] == [LONG]
