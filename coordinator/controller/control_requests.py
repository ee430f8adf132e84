"""The requests by which a controller tells brokers what to do: LeaderAndIsr, UpdateMetadata, StopReplica.

A batch is filled with partitions and gives requests to brokers, in the order in which they must be sent: brokers learn
what they lead before anybody is told that they lead it, and stop replicas last. What would keep a broker busy for long
is cut into several requests. All carry the controller's epoch and the epoch of the receiving broker's registration, so
that both sides of an old conversation are recognised. Suspects are told everything, if they listen, but are not named
as live: nobody should wait for them. The requests are built for the newest versions of Kafka 3.9 (LeaderAndIsr 7,
UpdateMetadata 8, StopReplica 4).
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from coordinator.controller.cluster_image import LEADER_DURING_DELETE
from coordinator.controller.cluster_state import ClusterState, LiveBroker
from protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.schema import Message
from protocol.topic_partition import TopicPartition

MOST_PARTITIONS: Final = 200
"""Of one LeaderAndIsr or StopReplica: to open or delete so many logs keeps a broker busy for a part of a second."""
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch that stops a replica whatever epoch it is at: its topic is being deleted."""


class ControlRequests:
    """One batch. Partitions are read from the controller's state when the requests are built."""

    def __init__(self, state: ClusterState, controller_id: int, controller_epoch: int, listener_name: str) -> None:
        self._state = state
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._listener_name = listener_name
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._update_metadata: dict[TopicPartition, None] = {}
        self._metadata_receivers: dict[int, None] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}

    def tell_leadership(self, partition: TopicPartition, broker_ids: Iterable[int], *, is_new: bool = False) -> None:
        """Tell the partition's state to brokers that have a replica of it. The others need ``tell_metadata``."""
        for broker_id in broker_ids:
            partitions = self._leader_and_isr.setdefault(broker_id, {})
            partitions[partition] = partitions.get(partition, False) or is_new

    def tell_metadata(self, partitions: Iterable[TopicPartition], broker_ids: Iterable[int]) -> None:
        """Tell brokers who is alive and, in one request for all of them, what the partitions' states are."""
        self._update_metadata.update(dict.fromkeys(partitions))
        self._metadata_receivers.update(dict.fromkeys(broker_ids))

    def stop_replica(self, partition: TopicPartition, broker_ids: Iterable[int], *, delete: bool) -> None:
        for broker_id in broker_ids:
            partitions = self._stop_replica.setdefault(broker_id, {})
            partitions[partition] = partitions.get(partition, False) or delete

    def build(self) -> Iterator[tuple[int, Message]]:
        """The requests to live brokers, in the order to send them."""
        live = self._state.brokers
        for broker_id in sorted(self._leader_and_isr.keys() & live.keys()):
            for partitions in _portions(self._leader_and_isr[broker_id]):
                yield broker_id, self._leader_and_isr_request(live[broker_id], partitions)
        topic_states = list(self._metadata_topics())
        for broker_id in sorted(self._metadata_receivers.keys() & live.keys()):
            yield broker_id, self._update_metadata_request(live[broker_id], topic_states)
        for broker_id in sorted(self._stop_replica.keys() & live.keys()):
            for partitions in _portions(self._stop_replica[broker_id]):
                yield broker_id, self._stop_replica_request(live[broker_id], partitions)

    def _leader_and_isr_request(self, broker: LiveBroker, partitions: dict[TopicPartition, bool]) -> Message:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders = set()
        for partition, is_new in partitions.items():
            topic_id = self._state.topics[partition.topic].assignment.topic_id
            told = topics.setdefault(
                partition.topic, LeaderAndIsrTopicState(topic_name=partition.topic, topic_id=topic_id)
            )
            told.partition_states.append(self._leader_and_isr_state(partition, is_new))
            leaders.add(told.partition_states[-1].leader)
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
            live_leaders=[leader for leader in self._live_leaders() if leader.broker_id in leaders],
        )

    def _leader_and_isr_state(self, partition: TopicPartition, is_new: bool) -> LeaderAndIsrPartitionState:
        versioned = self._state.topics[partition.topic].states[partition.partition]
        state, assignment = versioned.state, self._state.replicas(partition)
        return LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=versioned.version,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=int(state.leader_recovery_state),
        )

    def _live_leaders(self) -> Iterator[LeaderAndIsrLiveLeader]:
        for broker_id, broker in self._state.brokers.items():
            for endpoint in broker.registration.endpoints:
                if endpoint.listener == self._listener_name:
                    yield LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)

    def _metadata_topics(self) -> Iterator[UpdateMetadataTopicState]:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for partition in self._update_metadata:
            state = self._metadata_state(partition)
            if state is not None:
                topic_id = self._state.topics[partition.topic].assignment.topic_id
                told = topics.setdefault(
                    partition.topic, UpdateMetadataTopicState(topic_name=partition.topic, topic_id=topic_id)
                )
                told.partition_states.append(state)
        yield from topics.values()

    def _metadata_state(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        """What everybody may know of a partition; None while it has no state."""
        versioned = self._state.state(partition)
        if versioned is None:
            return None
        state, replicas = versioned.state, self._state.replicas(partition).replicas
        being_deleted = partition.topic in self._state.topics_to_delete
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if being_deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=versioned.version,
            replicas=list(replicas),
            offline_replicas=[replica for replica in replicas if not self._is_online(replica)],
        )

    def _update_metadata_request(self, broker: LiveBroker, topics: list[UpdateMetadataTopicState]) -> Message:
        return UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=topics,
            live_brokers=[
                _live_broker(broker) for id_, broker in sorted(self._state.brokers.items()) if self._is_online(id_)
            ],
        )

    def _is_online(self, broker_id: int) -> bool:
        return broker_id in self._state.brokers and broker_id not in self._state.suspects

    def _stop_replica_request(self, broker: LiveBroker, partitions: dict[TopicPartition, bool]) -> Message:
        topics: dict[str, StopReplicaTopicState] = {}
        for partition, delete in partitions.items():
            told = topics.setdefault(partition.topic, StopReplicaTopicState(topic_name=partition.topic))
            told.partition_states.append(
                StopReplicaPartitionState(
                    partition_index=partition.partition,
                    leader_epoch=self._stop_epoch(partition),
                    delete_partition=delete,
                )
            )
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
        )

    def _stop_epoch(self, partition: TopicPartition) -> int:
        versioned = self._state.state(partition)
        if versioned is None or partition.topic in self._state.topics_to_delete:
            return EPOCH_DURING_DELETE
        return versioned.state.leader_epoch


def _portions(partitions: dict[TopicPartition, bool]) -> Iterator[dict[TopicPartition, bool]]:
    items = iter(partitions.items())
    while portion := dict(islice(items, MOST_PARTITIONS)):
        yield portion


def _live_broker(broker: LiveBroker) -> UpdateMetadataBroker:
    registration = broker.registration
    return UpdateMetadataBroker(
        id=registration.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=int(endpoint.security_protocol),
            )
            for endpoint in registration.endpoints
        ],
        rack=registration.rack,
    )
