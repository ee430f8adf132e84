"""What a broker knows of its cluster: live brokers, topics, and the leader of each partition.

``ClusterImage`` is a value. The controller sends it in UpdateMetadata requests; ``MetadataCache`` replaces the whole
image by the next one, so a handler that reads ``cache.image`` once sees one consistent moment, and nothing needs a
lock. Building the next image copies the topic table's references and the topics that changed, nothing else.

As in Apache Kafka, an UpdateMetadata names *all* live brokers, but only the partitions that changed; a leader of
-2 means "this partition is being deleted", and a topic without partitions is gone. A *full* one names every partition:
it replaces the image, and what it does not name does not exist. Each controller begins with a full one. Requests that
a newer one has overtaken are refused (``controller_fence``).

A partition that is not in the image may be deleted, or not known yet. It counts as deleted only after a full update of
the newest controller from which this broker has received a request.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.coordinator.controller.controller_fence import ControllerFence
from oncelog.coordinator.ports import LeaderAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import (
    FULL,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRecovery,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2
NO_CONTROLLER: Final = -1


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached by its clients."""

    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A live broker, with one endpoint for each of its listeners."""

    id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None
    epoch: int = -1
    """Of its registration; -1: the controller does not say."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return self.endpoints.get(listener_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """Leadership and replicas of one partition, as the controller last sent them."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = 0
    """The version of the partition's state znode."""
    controller_epoch: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_leader: int = NO_LEADER
    """The last leader, while there is none and the cluster remembers it."""
    last_known_elr: tuple[int, ...] = ()
    recovery: UpdateMetadataRecovery | None = None
    """What the partition waits for, if it has no leader and the controller says so."""


class TopicImage(NamedTuple):
    """A topic and its partitions by index."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


_NOTHING: Final[Mapping[int, PartitionImage]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """One consistent moment of the cluster."""

    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    """Names by topic id; topics that have no id are absent."""

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self.brokers.get(broker_id)

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Return where clients of ``listener_name`` reach a broker; None if it is not alive or has no such listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener_name)

    def updated(self, request: UpdateMetadataRequest) -> "ClusterImage":
        """Return the next image, after the controller's request."""
        topics, names = self.topics, self.topic_names
        if request.topic_states:
            topics, names = dict(topics), dict(names)
            for state in request.topic_states:
                _update_topic(topics, names, state)
        return ClusterImage(
            controller_id=request.controller_id,
            brokers={broker.id: _broker_image(broker) for broker in request.live_brokers},
            topics=topics,
            topic_names=names,
        )


def _update_topic(topics: dict[str, TopicImage], names: dict[bytes, str], state: UpdateMetadataTopicState) -> None:
    name, before = state.topic_name, topics.get(state.topic_name)
    known = _NOTHING if before is None or _is_another_topic(state, before) else before.partitions
    partitions = _updated_partitions(known, state.partition_states)
    if before is not None:
        names.pop(before.topic_id, None)
    if not partitions:
        topics.pop(name, None)
        return
    topics[name] = TopicImage(name=name, topic_id=state.topic_id, partitions=partitions)
    if state.topic_id != ZERO_UUID:
        names[state.topic_id] = name


def _is_another_topic(state: UpdateMetadataTopicState, before: TopicImage) -> bool:
    """Return whether the name now belongs to another topic: it was deleted and created again."""
    return state.topic_id != before.topic_id and ZERO_UUID not in (state.topic_id, before.topic_id)


def _updated_partitions(
    known: Mapping[int, PartitionImage], states: Iterable[UpdateMetadataPartitionState]
) -> dict[int, PartitionImage]:
    partitions = dict(known)
    for state in states:
        if state.leader == LEADER_DURING_DELETE:
            partitions.pop(state.partition_index, None)
        else:
            partitions[state.partition_index] = _partition_image(state)
    return dict(sorted(partitions.items()))


def _partition_image(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        offline_replicas=tuple(state.offline_replicas),
        partition_epoch=state.zk_version,
        controller_epoch=state.controller_epoch,
        eligible_leader_replicas=tuple(state.eligible_leader_replicas),
        last_leader=state.last_leader,
        last_known_elr=tuple(state.last_known_elr),
        recovery=state.recovery,
    )


def _broker_image(broker: UpdateMetadataBroker) -> BrokerImage:
    endpoints = {
        endpoint.listener: Endpoint(
            host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol
        )
        for endpoint in broker.endpoints
    }
    return BrokerImage(id=broker.id, endpoints=endpoints, rack=broker.rack, epoch=broker.epoch)


class MetadataChange(NamedTuple):
    """What listeners get: the image before, the image after, and the topics that an update named or left out."""

    before: ClusterImage
    after: ClusterImage
    topics: frozenset[str]
    is_full: bool = False
    """Whether the update named every partition that exists."""
    being_deleted: frozenset[str] = frozenset()
    """Topics of which the update said that they are being deleted."""


def _topics_being_deleted(request: UpdateMetadataRequest) -> Iterator[str]:
    for topic in request.topic_states:
        if any(state.leader == LEADER_DURING_DELETE for state in topic.partition_states):
            yield topic.topic_name


MetadataListener = Callable[[MetadataChange], None]


class InternalTopicSizes:
    """The number of partitions of each internal topic, fixed when the topic is first in the metadata of this broker.

    A group or a transactional id belongs to the partition that its hash and this number give. Another number would move
    it to a partition that knows nothing of its offsets or its epoch. The controller refuses such a change; if another
    tool makes it, a running broker keeps to the number that it knows, as in Apache Kafka."""

    __slots__ = ("_ids", "counts")

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        """By name, the topic id that the number belongs to."""
        self.counts: dict[str, int] = {}
        """By name, the number of partitions."""

    def take(self, topics: Mapping[str, TopicImage]) -> None:
        """Note the internal topics of a new image."""
        for name in INTERNAL_TOPICS & topics.keys():
            topic = topics[name]
            count = max(topic.partitions) + 1
            if topic.topic_id != self._ids.get(name):
                self._ids[name], self.counts[name] = topic.topic_id, count
            elif count != self.counts[name]:
                logger.error(
                    "%s has %d partitions now. This broker goes on with %d until it is restarted; with another number, "
                    "committed offsets or producer epochs are not found any more",
                    name,
                    count,
                    self.counts[name],
                )


class MetadataCache:
    """The current image of one broker, and the listeners to changes. Implements ``ports.TopicMetadata``."""

    __slots__ = ("_full_epoch", "_internal_topics", "_listeners", "fence", "image")

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.fence = ControllerFence()
        """Shared by all that carries out the controller's requests."""
        self._full_epoch = -1
        """The epoch of the controller that sent the last full update."""
        self._listeners: list[MetadataListener] = []
        self._internal_topics = InternalTopicSizes()

    @property
    def controller_epoch(self) -> int:
        """The highest epoch of a controller that sent a request."""
        return self.fence.epoch

    def add_listener(self, listener: MetadataListener) -> None:
        """Call ``listener`` after each update, in the order in which listeners were added."""
        self._listeners.append(listener)

    def apply_update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Apply the controller's request, unless a newer one has come before."""
        if not self.admit(request, "UpdateMetadata"):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        before, is_full = self.image, request.type == FULL
        self.image = (ClusterImage() if is_full else before).updated(request)
        topics = {state.topic_name for state in request.topic_states}
        if is_full:
            self._full_epoch = request.controller_epoch
            topics |= before.topics.keys()
        if not topics.isdisjoint(INTERNAL_TOPICS):
            self._internal_topics.take(self.image.topics)
        change = MetadataChange(
            before=before,
            after=self.image,
            topics=frozenset(topics),
            is_full=is_full,
            being_deleted=frozenset(_topics_being_deleted(request)),
        )
        for listener in self._listeners:
            listener(change)
        return ErrorCode.NONE

    def admit(self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest, kind: str) -> bool:
        """Return whether a control request is to be carried out: no newer one has come before."""
        if self.fence.admit(request.controller_epoch, request.sequence):
            return True
        logger.warning(
            "Refused %s of controller %d: request %d of epoch %d is older than request %d of epoch %d",
            kind,
            request.controller_id,
            request.sequence,
            request.controller_epoch,
            self.fence.sequence,
            self.fence.epoch,
        )
        return False

    def is_deleted(self, partition: TopicPartition) -> bool:
        """Return whether the partition is known not to exist; one that is only not known yet is not deleted."""
        return self._full_epoch == self.fence.epoch and self.image.partition(partition) is None

    def topic_exists(self, topic: str) -> bool:
        return topic in self.image.topics

    def partition_count(self, topic: str) -> int | None:
        image = self.image.topics.get(topic)
        if image is None:
            return None
        return self._internal_topics.counts.get(topic) or len(image.partitions)

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic; ``ZERO_UUID``: no such topic, or it has none."""
        image = self.image.topics.get(topic)
        return ZERO_UUID if image is None else image.topic_id

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        """Return the leader and its epoch; None while the partition is unknown or has no leader."""
        topic = self.image.topics.get(partition.topic)
        image = None if topic is None else topic.partitions.get(partition.partition)
        if image is None or image.leader < 0:
            return None
        return LeaderAndEpoch(image.leader, image.leader_epoch)
