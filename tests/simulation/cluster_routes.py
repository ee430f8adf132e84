"""Which broker of a cluster a simulated client sends a request to.

It does what real clients do: it learns who is responsible, and believes that until it hears otherwise or nothing at
all. So it also speaks to brokers that were replaced and do not know it yet, which is when they must make no mistake.
"""

import random
from collections.abc import Iterator
from typing import Final, TypeAlias

from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.znodes import decode_controller, decode_partition_state, decode_topic
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.create_topics import CreateTopicsRequest
from oncelog.protocol.messages.delete_records import DeleteRecordsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.fetch import FetchRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest
from oncelog.protocol.messages.leave_group import LeaveGroupRequest
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.sync_group import SyncGroupRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog.protocol.messages.update_features import UpdateFeaturesRequest
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.wire_client import NoResponse

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these a client asks anew who is responsible."""


_CONTROLLER: Final = TopicPartition("the controller", -1)
_ANYBODY: Final = TopicPartition("any broker", -1)
_Role: TypeAlias = TopicPartition
"""A partition stands for its leader."""


class ClusterRoutes:
    """Of one client of a cluster. It looks into the store, as if some broker's metadata were always fresh."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._known: dict[_Role, int] = {}
        self._partition_counts: dict[str, int] = {}
        """Of the logs of coordinators, which never change."""

    def port(self, request: Message) -> int:
        role = self._role(request)
        broker_id = self._known.get(role, -1)
        if broker_id < 0:
            broker_id = self._look_up(role)
        if broker_id < 0:
            raise NoResponse(f"no broker is {role}")
        self._known[role] = broker_id
        return self._cluster[broker_id].port

    def heard(self, request: Message, response: Message) -> None:
        if not _MOVED.isdisjoint(_codes(response)):
            self.lost(request)

    def lost(self, request: Message) -> None:
        self._known.pop(self._role(request), None)

    def _role(self, request: Message) -> _Role:
        match request:
            case ProduceRequest(topic_data=[topic]):
                return TopicPartition(topic.name, topic.partition_data[0].index)
            case FetchRequest(topics=[topic]):
                return TopicPartition(topic.topic, topic.partitions[0].partition)
            case WriteTxnMarkersRequest(markers=[marker]):
                return TopicPartition(marker.topics[0].name, marker.topics[0].partition_indexes[0])
            case DeleteRecordsRequest(topics=[topic]):
                return TopicPartition(topic.name, topic.partitions[0].partition_index)
            case CreateTopicsRequest() | DeleteTopicsRequest() | UpdateFeaturesRequest():
                return _CONTROLLER
        return self._coordinator(request)

    def _coordinator(self, request: Message) -> _Role:
        match request:
            case AddPartitionsToTxnRequest(v3_and_below_transactional_id=key):
                return self._log_of(TRANSACTION_STATE_TOPIC_NAME, key)
            case InitProducerIdRequest(transactional_id=str(key)):
                return self._log_of(TRANSACTION_STATE_TOPIC_NAME, key)
            case AddOffsetsToTxnRequest(transactional_id=key) | EndTxnRequest(transactional_id=key):
                return self._log_of(TRANSACTION_STATE_TOPIC_NAME, key)
            case TxnOffsetCommitRequest(group_id=key) | OffsetCommitRequest(group_id=key):
                return self._log_of(GROUP_METADATA_TOPIC_NAME, key)
            case JoinGroupRequest(group_id=key) | SyncGroupRequest(group_id=key):
                return self._log_of(GROUP_METADATA_TOPIC_NAME, key)
            case HeartbeatRequest(group_id=key) | LeaveGroupRequest(group_id=key):
                return self._log_of(GROUP_METADATA_TOPIC_NAME, key)
            case OffsetFetchRequest(groups=[group]):
                return self._log_of(GROUP_METADATA_TOPIC_NAME, group.group_id)
        return _ANYBODY

    def _log_of(self, topic: str, key: str) -> _Role:
        """Before there is a log, anybody can say so."""
        count = self._partition_counts.get(topic)
        if count is None:
            znode = self._cluster.ensemble.tree.get(paths.topic(topic))
            if znode is None:
                return _ANYBODY
            count = self._partition_counts[topic] = len(decode_topic(znode.data).partitions)
        return TopicPartition(topic, partition_for(key, count))

    def _look_up(self, role: _Role) -> int:
        tree = self._cluster.ensemble.tree
        if role == _ANYBODY:
            return self._rng.choice(list(self._cluster.brokers))
        if role == _CONTROLLER:
            znode = tree.get(paths.CONTROLLER)
            return -1 if znode is None else decode_controller(znode.data)
        znode = tree.get(paths.partition_state(role))
        return -1 if znode is None else decode_partition_state(znode.data).leader


def _codes(response: Message) -> Iterator[int]:
    """Every error code in a response."""
    for field in type(response).fields:
        value = getattr(response, field.name)
        if field.name.endswith("error_code"):
            yield value
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, Message):
                yield from _codes(part)
