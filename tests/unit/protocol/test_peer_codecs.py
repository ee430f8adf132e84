"""Our bytes are those of two other implementations, kio and kafka-python, wherever they have the version.

What neither has is listed here, so that the list can only be changed on purpose; those messages are checked against
bytes made by Apache Kafka's own classes (``tests/conformance/test_kafka_vectors.py``).
"""

from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.protocol.compiler import encode
from oncelog.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.protocol.schema import Message, parse_versions
from tests.unit.protocol import kafka_python_peer, kio_peer
from tests.unit.protocol.declared import as_peers_know_it, every_version, full, messages, sparse, title

PEERS = (kio_peer, kafka_python_peer)
UNCOVERED = {
    "AlterPartitionRequest": "0-1",
    "AlterPartitionResponse": "0-1",
    "ControlledShutdownRequest": "0-3",
    "ControlledShutdownResponse": "0-3",
    "FetchRequest": "0-3",
    "FetchResponse": "0-3",
    "GroupMetadataKey": "0",
    "GroupMetadataValue": "0-4",
    "LeaderAndIsrRequest": "0-7",
    "LeaderAndIsrResponse": "0-7",
    "ListOffsetsRequest": "0",
    "ListOffsetsResponse": "0",
    "OffsetCommitKey": "0",
    "OffsetCommitValue": "0-4",
    "ProduceRequest": "0-2",
    "ProduceResponse": "0-2",
    "ProducerSnapshot": "1",
    "StopReplicaRequest": "0-4",
    "StopReplicaResponse": "0-4",
    "TransactionLogKey": "0",
    "TransactionLogValue": "0-1",
    "UpdateMetadataRequest": "0-8",
    "UpdateMetadataResponse": "0-8",
    "WriteTxnMarkersRequest": "0",
    "WriteTxnMarkersResponse": "0",
}


def peers_of(cls: type[Message], version: int) -> list[ModuleType]:
    return [peer for peer in PEERS if peer.peer_class(cls.__name__, version) is not None]


COVERED = [(cls, version) for cls, version in every_version() if peers_of(cls, version)]


def assert_same(message: Message, version: int) -> None:
    message = as_peers_know_it(message)
    for peer in peers_of(type(message), version):
        assert encode(message, version) == peer.encode(message, version), peer.__name__


@pytest.mark.parametrize(("cls", "version"), COVERED, ids=title)
def test_bytes_equal_those_of_peers_for_generated_instances(cls: type[Message], version: int) -> None:
    @settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        assert_same(data.draw(messages(cls, version)), version)

    check()


@pytest.mark.parametrize(("cls", "version"), COVERED, ids=title)
def test_bytes_equal_those_of_peers_at_the_extremes(cls: type[Message], version: int) -> None:
    for message in (cls(), full(cls, version), sparse(cls, version)):
        assert_same(message, version)


def test_tagged_structure_of_defaults_is_left_out() -> None:
    partitions = [PartitionProduceResponse(current_leader=leader) for leader in (LeaderIdAndEpoch(), None)]
    first, second = (
        ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])]) for partition in partitions
    )
    assert_same(first, 11)
    assert encode(first, 11) == encode(second, 11)


def test_messages_that_no_peer_covers_are_listed() -> None:
    uncovered = {(cls.__name__, version) for cls, version in every_version() if not peers_of(cls, version)}
    known = {(name, version) for name, versions in UNCOVERED.items() for version in parse_versions(versions)}
    print(f"{len(uncovered)} of {len(list(every_version()))} (message, version) pairs have no peer:")
    for name, version in sorted(uncovered):
        print(f"  {name} v{version}")
    assert uncovered == known
