"""How `oncelog health` finds an id for each partition of an internal topic."""

from oncelog.clients.cli.unserved_coordinators import ids_by_partition
from oncelog.protocol.internal.placement import partition_for


def test_there_is_one_id_for_each_partition_that_is_wanted() -> None:
    found = ids_by_partition(50, range(0, 50, 2))
    assert sorted(found.values()) == list(range(0, 50, 2))
    assert all(partition_for(name, 50) == partition for name, partition in found.items())


def test_there_are_no_ids_for_a_topic_that_does_not_exist() -> None:
    assert ids_by_partition(0, []) == {}
