"""The cluster as the active controller knows it: brokers, topics, partition states, topics to delete.

It is read from the metadata store when a controller epoch begins, changes only after the store has accepted the same
change, and is dropped when the epoch ends. Decisions read it; only the work of the active controller writes it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.coordinator.controller.assignment import BrokerAndRack
from oncelog.coordinator.controller.log_ends import LogEnds
from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy
from oncelog.coordinator.controller.unwritable_replicas import UnwritableReplicas
from oncelog.coordinator.controller.waiting_partition import WaitingPartition
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Znode
from oncelog.coordinator.metadata_store.znodes import (
    BrokerRegistration,
    MalformedZnode,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from oncelog.protocol import topic_name
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class LiveBroker(NamedTuple):
    """A registered broker. Its epoch is the id of the transaction that registered it."""

    registration: BrokerRegistration
    epoch: int

    @property
    def intact_since(self) -> int:
        """The first broker epoch since which its logs have lost nothing."""
        since = self.registration.intact_since
        return self.epoch if since is None else since

    def has_kept(self, epoch: int) -> bool:
        """Return whether its logs have lost nothing since the broker epoch ``epoch``, and have seen it."""
        until = self.registration.intact_until
        return (
            epoch == self.epoch
            or (until is not None and self.intact_since <= epoch <= until)
            or self._kept_before(epoch)
        )

    def has_kept_since(self, zxid: int) -> bool:
        """Return whether its logs have lost nothing since a transaction of the store, and were the broker's then."""
        return self.intact_since <= zxid or self._kept_before(zxid)

    def _kept_before(self, zxid: int) -> bool:
        return any(first <= zxid <= last for first, last in self.registration.intact_before)


class VersionedState(NamedTuple):
    """A partition's state as its znode holds it."""

    state: PartitionState
    version: int
    mzxid: int
    """When it was written, in transactions of the store."""


@dataclass(slots=True, kw_only=True)
class TopicState:
    """A topic: where its partitions lie, and the state of those that have one."""

    assignment: TopicAssignment
    version: int
    states: dict[int, VersionedState] = field(default_factory=dict)


def _nothing() -> None:
    """Do nothing, until there is a listener."""


def _never() -> bool:
    """Return False, until the features are known."""
    return False


def _never_for(topic: str) -> bool:
    """Return Kafka's default of ``unclean.leader.election.enable``."""
    return False


def _balanced(topic: str) -> RecoveryStrategy:
    """Return the default of ``unclean.recovery.strategy``."""
    return RecoveryStrategy.BALANCED


def _ignore(partition: TopicPartition) -> None:
    """Do nothing, until there is a listener."""


def _one(topic: str) -> int:
    """Return Kafka's default of ``min.insync.replicas``."""
    return 1


@dataclass(slots=True)
class ClusterState:
    """All of it."""

    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    unreachable: set[int] = field(default_factory=set)
    """Registered brokers that cannot be reached."""
    shutting_down: set[int] = field(default_factory=set)
    """Registered brokers that are about to stop."""
    full: set[int] = field(default_factory=set)
    """Registered brokers whose disk is full."""
    unwritable: UnwritableReplicas = field(default_factory=UnwritableReplicas)
    """Single replicas that cannot be written."""
    topics: dict[str, TopicState] = field(default_factory=dict)
    topics_to_delete: dict[str, None] = field(default_factory=dict)
    """Topics whose deletion was accepted and is not finished, oldest first."""
    unreadable: set[str] = field(default_factory=set)
    """Topics of which a znode cannot be decoded: they exist, although they are not in this state."""
    topic_names: dict[bytes, str] = field(default_factory=dict)
    malformed: dict[str, int] = field(default_factory=dict)
    """Znodes that cannot be decoded, by path, each with the transaction that wrote it. What they describe is set aside:
    nothing is decided about it."""
    keeps_eligible: Callable[[], bool] = _never
    """Returns whether the cluster remembers eligible leader replicas (``eligible.leader.replicas.version``)."""
    min_isr: Callable[[str], int] = _one
    """Returns ``min.insync.replicas`` of a topic."""
    unclean_election_allowed: Callable[[str], bool] = _never_for
    """Returns whether a topic may be led by a replica that is not in sync, where no eligible replicas are kept."""
    recovery_strategy: Callable[[str], RecoveryStrategy] = _balanced
    """Returns the strategy of a topic's unclean recovery, where they are kept."""
    log_ends: LogEnds = field(default_factory=LogEnds)
    """Of partitions without a leader, as brokers reported them."""
    waiting: dict[TopicPartition, WaitingPartition] = field(default_factory=dict)
    """Partitions without a leader, and what they wait for."""
    on_set_aside: Callable[[], None] = _nothing
    """Called when another znode is set aside."""
    on_unclean_election: Callable[[], None] = _nothing
    """Called when a partition has got a leader that may lack acknowledged records."""
    on_state: Callable[[TopicPartition], None] = _ignore
    """Called when a partition has another state."""
    _unified_names: dict[str, set[str]] = field(default_factory=dict)

    def put_topic(self, name: str, topic: TopicState) -> None:
        self.topics[name] = topic
        if topic.assignment.topic_id != ZERO_UUID:
            self.topic_names[topic.assignment.topic_id] = name
        self._unified_names.setdefault(topic_name.unified(name), set()).add(name)

    def set_aside(self, path: str, znode: Znode, error: MalformedZnode) -> None:
        """Decide nothing about what a znode describes, for it cannot be decoded."""
        if self.malformed.get(path) != znode.stat.mzxid:
            logger.error("%s is malformed; what it describes is set aside until it is mended: %s", path, error)
            self.malformed[path] = znode.stat.mzxid
            self.on_set_aside()

    def is_set_aside(self, partition: TopicPartition) -> bool:
        """Return whether the state of the partition cannot be decoded."""
        return bool(self.malformed) and paths.partition_state(partition) in self.malformed

    def take_state(self, partition: TopicPartition, znode: Znode) -> None:
        """Take a partition's state as it was read, or set the partition aside."""
        path = paths.partition_state(partition)
        try:
            state = znodes.decode_partition_state(znode.data)
        except MalformedZnode as error:
            self.set_aside(path, znode, error)
            self.topics[partition.topic].states.pop(partition.partition, None)
        else:
            self.malformed.pop(path, None)
            versioned = VersionedState(state=state, version=znode.stat.version, mzxid=znode.stat.mzxid)
            self.put_state(partition, versioned)

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        for index in topic.assignment.partitions:
            partition = TopicPartition(name, index)
            self.malformed.pop(paths.partition_state(partition), None)
            self.waiting.pop(partition, None)
            self.log_ends.forget(partition)
            self.unwritable.forget(partition)
        self.topic_names.pop(topic.assignment.topic_id, None)
        self.topics_to_delete.pop(name, None)
        alike = self._unified_names[topic_name.unified(name)]
        alike.discard(name)
        if not alike:
            del self._unified_names[topic_name.unified(name)]

    def colliding_topic(self, name: str) -> str | None:
        """Return an existing topic of another name that has the same name in metrics."""
        alike = self._unified_names.get(topic_name.unified(name), set()) - {name}
        return min(alike) if alike else None

    def brokers_and_racks(self) -> list[BrokerAndRack]:
        return [
            BrokerAndRack(broker_id, self.brokers[broker_id].registration.rack) for broker_id in sorted(self.brokers)
        ]

    def remove_broker(self, broker_id: int) -> None:
        """Remove a broker that is not registered any more, and what is known of this incarnation."""
        del self.brokers[broker_id]
        self.unreachable.discard(broker_id)
        self.shutting_down.discard(broker_id)
        self.full.discard(broker_id)
        self.unwritable.remove_broker(broker_id)

    def partitions_with_eligible(self) -> Iterator[TopicPartition]:
        """Return the partitions of which replicas outside of the ISR are known to have everything acknowledged."""
        for name, topic in self.topics.items():
            for index, versioned in topic.states.items():
                if versioned.state.elr:
                    yield TopicPartition(name, index)

    def broker_epochs(self) -> dict[int, int]:
        """Return the broker epoch of every registered broker."""
        return {broker_id: broker.epoch for broker_id, broker in self.brokers.items()}

    def reliable_brokers(self, partition: TopicPartition) -> set[int]:
        """Return the brokers that are reachable, can write to their replica if any, and are not shutting down."""
        reliable = self.brokers.keys() - self.unreachable - self.shutting_down - self.full
        return reliable.difference(self.unwritable.of(partition))

    def usable_brokers(self, partition: TopicPartition, replicas: Collection[int]) -> Collection[int]:
        """Return the brokers among which a partition may have its leader and its ISR.

        ``replicas``: those that could lead it. Brokers that are unreachable, shutting down or cannot write count
        only if none of them is reliable.
        """
        reliable = self.reliable_brokers(partition)
        return self.brokers.keys() if reliable.isdisjoint(replicas) else reliable

    def replicas(self, partition: TopicPartition) -> ReplicaAssignment:
        return self.topics[partition.topic].assignment.partitions[partition.partition]

    def state(self, partition: TopicPartition) -> VersionedState | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.states.get(partition.partition)

    def put_state(self, partition: TopicPartition, state: VersionedState) -> None:
        self.topics[partition.topic].states[partition.partition] = state
        self.on_state(partition)

    def is_needed(self, broker_id: int, partition: TopicPartition) -> bool:
        """Return whether a partition refuses writes (``acks=all``) because a replica on a broker is not in sync."""
        versioned = self.state(partition)
        if versioned is None or partition.topic in self.topics_to_delete:
            return False
        isr, replicas = versioned.state.isr, self.replicas(partition).replicas
        if broker_id in isr or broker_id not in replicas:
            return False
        return len(isr) < min(self.min_isr(partition.topic), len(replicas))

    def partitions(self, names: Iterable[str] | None = None) -> Iterator[TopicPartition]:
        """Yield every partition of the named topics, or of all."""
        for name in self.topics if names is None else names:
            for index in self.topics[name].assignment.partitions:
                yield TopicPartition(name, index)

    def partitions_on(self, broker_id: int) -> Iterator[TopicPartition]:
        """Yield the partitions that have a replica on a broker."""
        for partition in self.partitions():
            if broker_id in self.replicas(partition).replicas:
                yield partition

    def usable_members(self, partition: TopicPartition, state: VersionedState) -> Collection[int]:
        """Return the brokers among which a partition in this state may have its leader and its ISR.

        Brokers that registered anew since the state was written are left out, too, where others remain: what they have
        lost is not known. A new controller may find some in an ISR, because there was no controller to remove them when
        they stopped (compare KIP-903).
        """
        usable = self.usable_brokers(partition, state.state.isr)
        unbroken = {broker_id for broker_id in usable if self.brokers[broker_id].epoch <= state.mzxid}
        return usable if unbroken.isdisjoint(state.state.isr) else unbroken

    def leader_restarted(self, state: VersionedState) -> bool:
        """Return whether the leader registered anew since it was elected."""
        leader = self.brokers.get(state.state.leader)
        return leader is not None and leader.epoch > state.mzxid
