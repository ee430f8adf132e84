"""Which file imports which, and the circles in it."""

import pytest

from tests.house.import_graph import circles, import_graph
from tests.unit.house.parsed import parsed, product


@pytest.mark.parametrize(
    "statement",
    [
        "import broker.dispatch",
        "import oncelog.broker.dispatch",
        "from broker import dispatch",
        "from oncelog.broker import dispatch",
        "from broker.dispatch import Dispatcher",
        "from oncelog.broker.dispatch import Dispatcher",
        "from . import dispatch",
        "from .dispatch import Dispatcher",
        "if TYPE_CHECKING:\n    from broker.dispatch import Dispatcher",
        "def late():\n    import broker.dispatch",
    ],
)
def test_import_graph_every_form_of_import_gives_one_arrow(statement: str) -> None:
    graph = import_graph(product(broker__server=statement, broker__dispatch="import asyncio"))
    assert graph == {"broker.server": {"broker.dispatch"}, "broker.dispatch": set()}


def test_import_graph_name_from_package_leads_to_package() -> None:
    package = parsed("broker/handlers/__init__.py", "from . import fetch\nfrom ..server import Broker")
    sources = [package, *product(broker__server="from broker.handlers import all_handlers", broker__handlers__fetch="")]
    assert import_graph(sources) == {
        "broker.handlers": {"broker.handlers.fetch", "broker.server"},
        "broker.server": {"broker.handlers"},
        "broker.handlers.fetch": set(),
    }


@pytest.mark.parametrize(
    ("arrows", "expected"),
    [
        ("ab bc", []),
        ("ab ba", [["a", "b"]]),
        ("ab bc ca", [["a", "b", "c"]]),
        ("ab ba bc cd dc", [["a", "b"], ["c", "d"]]),
        ("ab bc cb cd db", [["b", "c", "d"]]),
        ("da ab ba cd ac", [["a", "b", "c", "d"]]),
    ],
)
def test_circles_drawn_graph_returns_components(arrows: str, expected: list[list[str]]) -> None:
    graph = {a: frozenset(arrow[1] for arrow in arrows.split() if arrow[0] == a) for a in "abcd"}
    assert circles(graph) == expected
