"""How `oncelog health` finds an id for each partition of an internal topic."""

from oncelog.clients.cli.unserved_coordinators import ids_by_partition
from oncelog.protocol.internal.placement import partition_for


def test_ids_for_partitions_cover_each_wanted_partition() -> None:
    found = ids_by_partition(50, range(0, 50, 2))
    assert sorted(found.values()) == list(range(0, 50, 2))
    assert all(partition_for(name, 50) == partition for name, partition in found.items())


def test_ids_for_missing_topic_are_none() -> None:
    assert ids_by_partition(0, []) == {}
