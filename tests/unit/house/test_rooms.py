"""Rooms, and the arrows that go against any order of them."""

from itertools import combinations, permutations, product

import pytest

from tests.house.import_graph import import_graph
from tests.house.rooms import arrow_count, room_graph, room_of, upward_arrows, within
from tests.unit.house import parsed


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("broker/__init__.py", None),
        ("oncelog/producers.py", None),
        ("broker/server.py", "broker.server"),
        ("broker/storage/__init__.py", "broker.storage"),
        ("broker/storage/disk.py", "broker.storage"),
        ("clients/consumer/assignors/sticky.py", "clients.consumer.assignors"),
    ],
)
def test_room_of_path_returns_folder_or_loose_file(path: str, room: str | None) -> None:
    assert room_of(parsed.parsed(path, "")) == room


def test_room_graph_several_imports_give_one_arrow() -> None:
    sources = parsed.product(
        broker__server="import broker.storage.disk, clients.connection",
        broker__storage__disk="import broker.storage.log",
        broker__storage__log="",
        clients__connection="",
    )
    rooms = room_graph(sources, import_graph(sources))
    assert rooms["broker.server"] == {"broker.storage", "clients.connection"}
    assert arrow_count(rooms) == 2
    assert within(rooms, "broker") == {"broker.server": {"broker.storage"}, "broker.storage": set()}


def test_upward_arrows_every_graph_of_three_rooms_returns_fewest_of_all_orders() -> None:
    arrows = list(permutations("abc", 2))
    for chosen in product([False, True], repeat=len(arrows)):
        kept = [arrow for arrow, is_kept in zip(arrows, chosen, strict=True) if is_kept]
        graph = {a: frozenset(y for x, y in kept if x == a) for a in "abc"}
        fewest = min(sum(order.index(x) > order.index(y) for x, y in kept) for order in permutations("abc"))
        upward = upward_arrows(graph)
        assert len(upward) == fewest
        assert set(upward) <= set(kept)


def test_upward_arrows_four_rooms_that_all_import_each_other_returns_one_for_each_pair() -> None:
    graph = {a: frozenset(set("abcd") - {a}) for a in "abcd"}
    assert len(upward_arrows(graph)) == len(list(combinations("abcd", 2)))
