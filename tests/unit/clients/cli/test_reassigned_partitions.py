"""Partitions that move to other brokers, as ``oncelog health`` and ``oncelog topic describe`` show them."""

from oncelog.clients.cli.reassigned_partitions import Reassignment, about_reassignments, list_reassignments
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

MOVE = Reassignment((4,), (1, 2))


def test_moves_of_partitions_without_a_leader_are_said_to_wait() -> None:
    moving, waiting = about_reassignments({("a", 0): MOVE, ("b", 1): MOVE}, [("b", 1), ("c", 0)])
    assert moving.startswith("1 partition is being reassigned, and added replicas are in sync when")
    assert moving.endswith("(a-0: adds 4, removes 1, 2)")
    assert waiting == (
        "1 partition is to be reassigned, which waits until there is a leader (b-1: adds 4, removes 1, 2)"
    )
    assert about_reassignments({}, [("b", 1)]) == []


def test_many_moves_are_three_names_and_a_count() -> None:
    (said,) = about_reassignments({("a", index): Reassignment((4,), ()) for index in range(5)}, [])
    assert said.startswith("5 partitions are being reassigned")
    assert said.endswith("; a-2: adds 4, removes none; and 2 more)")


@in_virtual_time
async def test_reassignments_are_listed_by_the_controller_if_there_is_one() -> None:
    ongoing = OngoingPartitionReassignment(partition_index=3, adding_replicas=[4], removing_replicas=[1, 2])
    response = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="a", partitions=[ongoing])])
    broker = ScriptedBroker({ListPartitionReassignmentsRequest: response})
    async with cluster_of(broker) as cluster:
        await cluster.refresh(())
        assert await list_reassignments(cluster, 1) == {("a", 3): MOVE}
        assert await list_reassignments(cluster, None) == {}
    async with cluster_of(ScriptedBroker({})) as cluster:
        await cluster.refresh(())
        assert await list_reassignments(cluster, 1) == {}
