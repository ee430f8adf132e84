"""The control requests of a controller to brokers: LeaderAndIsr, UpdateMetadata, StopReplica.

A batch is filled with partitions and gives requests to brokers, in the order in which they must be sent: brokers learn
what they lead before clients are sent to them, and stop replicas last. What would keep a broker busy for long
is cut into several requests. All carry the controller's epoch and the epoch of the receiving broker's registration, so
that outdated requests and receivers are recognised. Unreachable brokers are sent everything, but are not named as live,
so that no client waits for them. The requests are built for the newest versions of Kafka 3.9 (LeaderAndIsr 7,
UpdateMetadata 8, StopReplica 4).

All receivers of a batch get the same UpdateMetadata, except for the epoch of their registration. What they have in
common is built once, and encoded once per version (``SharedList``), not once per receiver.

An UpdateMetadata is *full* if it names every partition that exists. A broker may conclude from it what does not exist
(any more), so it is never called full while a part of the cluster's state could not be read.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from oncelog.coordinator.controller.cluster_image import LEADER_DURING_DELETE, NO_LEADER
from oncelog.coordinator.controller.cluster_state import ClusterState, LiveBroker
from oncelog.coordinator.controller.replica_standing import described_eligible
from oncelog.coordinator.controller.waiting_partition import WaitingPartition
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from oncelog.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from oncelog.protocol.messages.update_metadata import (
    FULL,
    INCREMENTAL,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataLogEnd,
    UpdateMetadataPartitionState,
    UpdateMetadataRecovery,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from oncelog.protocol.schema import Message, SharedList
from oncelog.protocol.topic_partition import TopicPartition

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest

MOST_PARTITIONS: Final = 50
"""Of one LeaderAndIsr or StopReplica: to open so many logs keeps a broker busy for some 50 ms."""
MOST_FILE_CHANGES: Final = 10
"""Of those, logs to create or to delete. A busy file system takes milliseconds for the directory and files of each."""
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
        self._names_everything = False

    def add_leader_and_isr(self, partition: TopicPartition, broker_ids: Iterable[int], *, is_new: bool = False) -> None:
        """Add the partition's state for brokers that have a replica of it."""
        for broker_id in broker_ids:
            partitions = self._leader_and_isr.setdefault(broker_id, {})
            partitions[partition] = partitions.get(partition, False) or is_new

    def add_update_metadata(self, partitions: Iterable[TopicPartition], broker_ids: Iterable[int]) -> None:
        """Add the live brokers and, in one request for all receivers, the partitions' states."""
        self._update_metadata.update(dict.fromkeys(partitions))
        self._metadata_receivers.update(dict.fromkeys(broker_ids))

    def add_full_metadata(self, broker_ids: Iterable[int]) -> None:
        """Add the live brokers and the state of every partition."""
        self._names_everything = True
        self.add_update_metadata(self._state.partitions(), broker_ids)

    def add_stop_replica(self, partition: TopicPartition, broker_ids: Iterable[int], *, delete: bool) -> None:
        for broker_id in broker_ids:
            partitions = self._stop_replica.setdefault(broker_id, {})
            partitions[partition] = partitions.get(partition, False) or delete

    def build(self) -> Iterator[tuple[int, ControlRequest]]:
        """Yield the requests to live brokers, in the order to send them."""
        live = self._state.brokers
        leaders = {leader.broker_id: leader for leader in self._live_leaders()}
        for broker_id in sorted(self._leader_and_isr.keys() & live.keys()):
            for partitions in _portions(self._leader_and_isr[broker_id]):
                yield broker_id, self._leader_and_isr_request(live[broker_id], partitions, leaders)
        if receivers := sorted(self._metadata_receivers.keys() & live.keys()):
            topics, brokers = SharedList(self._metadata_topics()), SharedList(self._live_brokers())
            for broker_id in receivers:
                yield broker_id, self._update_metadata_request(live[broker_id], topics, brokers)
        for broker_id in sorted(self._stop_replica.keys() & live.keys()):
            for partitions in _portions(self._stop_replica[broker_id]):
                yield broker_id, self._stop_replica_request(live[broker_id], partitions)

    def _leader_and_isr_request(
        self,
        broker: LiveBroker,
        partitions: dict[TopicPartition, bool],
        live_leaders: Mapping[int, LeaderAndIsrLiveLeader],
    ) -> LeaderAndIsrRequest:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders = set()
        for partition, is_new in partitions.items():
            topic_id = self._state.topics[partition.topic].assignment.topic_id
            topic = topics.setdefault(
                partition.topic, LeaderAndIsrTopicState(topic_name=partition.topic, topic_id=topic_id)
            )
            topic.partition_states.append(self._leader_and_isr_state(partition, is_new))
            leaders.add(topic.partition_states[-1].leader)
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
            live_leaders=[live_leaders[leader] for leader in sorted(leaders & live_leaders.keys())],
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
            eligible_leader_replicas=list(state.elr),
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
                topic = topics.setdefault(
                    partition.topic, UpdateMetadataTopicState(topic_name=partition.topic, topic_id=topic_id)
                )
                topic.partition_states.append(state)
        yield from topics.values()

    def _metadata_state(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        """Return a partition's state for UpdateMetadata; None: the partition is left out.

        A partition without a state is named in a full update only, or if its state is malformed.
        """
        versioned, replicas = self._state.state(partition), self._state.replicas(partition).replicas
        if versioned is None:
            is_named = self._is_full_update or self._state.is_set_aside(partition)
            return self._stateless(partition, replicas) if is_named else None
        state = versioned.state
        elr, last_known_elr = described_eligible(self._state, versioned)
        being_deleted = partition.topic in self._state.topics_to_delete
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if being_deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=versioned.version,
            replicas=list(replicas),
            offline_replicas=[replica for replica in replicas if self._is_offline(partition, replica, state.leader)],
            eligible_leader_replicas=elr,
            last_leader=NO_LEADER if state.last_leader is None else state.last_leader,
            last_known_elr=last_known_elr,
            recovery=_recovery(self._state.waiting.get(partition)) if state.leader == NO_LEADER else None,
        )

    def _stateless(self, partition: TopicPartition, replicas: tuple[int, ...]) -> UpdateMetadataPartitionState:
        """Return the entry of a partition that exists and never had a leader, or whose state was lost."""
        being_deleted = partition.topic in self._state.topics_to_delete
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=self._controller_epoch,
            leader=LEADER_DURING_DELETE if being_deleted else NO_LEADER,
            leader_epoch=-1,
            zk_version=-1,
            replicas=list(replicas),
            offline_replicas=[replica for replica in replicas if not self._is_online(replica)],
        )

    def _update_metadata_request(
        self,
        broker: LiveBroker,
        topics: SharedList[UpdateMetadataTopicState],
        live_brokers: SharedList[UpdateMetadataBroker],
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self._controller_id,
            type=FULL if self._is_full_update else INCREMENTAL,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=topics,
            live_brokers=live_brokers,
        )

    def _is_offline(self, partition: TopicPartition, replica: int, leader: int) -> bool:
        """Return whether nothing can be written to a replica. A leader on a full disk can still be read."""
        cannot_write = replica in self._state.full or replica in self._state.unwritable.of(partition)
        return not self._is_online(replica) or (cannot_write and replica != leader)

    @property
    def _is_full_update(self) -> bool:
        return self._names_everything and not self._state.unreadable

    def _live_brokers(self) -> Iterator[UpdateMetadataBroker]:
        for broker_id, broker in sorted(self._state.brokers.items()):
            if self._is_online(broker_id):
                yield _live_broker(broker)

    def _is_online(self, broker_id: int) -> bool:
        return broker_id in self._state.brokers and broker_id not in self._state.unreachable

    def _stop_replica_request(self, broker: LiveBroker, partitions: dict[TopicPartition, bool]) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for partition, delete in partitions.items():
            topic_id = self._state.topics[partition.topic].assignment.topic_id
            topic = topics.setdefault(
                partition.topic, StopReplicaTopicState(topic_name=partition.topic, topic_id=topic_id)
            )
            topic.partition_states.append(
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


def _recovery(waiting: WaitingPartition | None) -> UpdateMetadataRecovery | None:
    if waiting is None:
        return None
    return UpdateMetadataRecovery(
        strategy=waiting.strategy,
        waits_for=list(waiting.waits_for),
        elects=waiting.elects,
        decides_at_ms=waiting.decides_at_ms,
        log_ends=[
            UpdateMetadataLogEnd(broker_id=broker_id, leader_epoch=end.leader_epoch, offset=end.offset)
            for broker_id, end in sorted(waiting.log_ends.items())
        ],
    )


def takes_long(request: Message) -> bool:
    """Return whether a request may create or delete as many logs as one request may."""
    if not isinstance(request, LeaderAndIsrRequest | StopReplicaRequest):
        return False
    return sum(len(topic.partition_states) for topic in request.topic_states) >= MOST_FILE_CHANGES


def _portions(partitions: dict[TopicPartition, bool]) -> Iterator[dict[TopicPartition, bool]]:
    """Cut what one request would take too long over; a partition's flag says that its log is created or deleted."""
    portion: dict[TopicPartition, bool] = {}
    file_changes = 0
    for partition, changes_files in partitions.items():
        file_changes += changes_files
        if len(portion) == MOST_PARTITIONS or file_changes > MOST_FILE_CHANGES:
            yield portion
            portion, file_changes = {}, int(changes_files)
        portion[partition] = changes_files
    if portion:
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
        epoch=broker.epoch,
    )
