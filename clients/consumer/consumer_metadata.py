"""Metadata of the topics that a consumer reads: requested, and applied to its subscription."""

from collections.abc import Callable, Collection, Iterable, Mapping

from oncelog.clients.connection import Address
from oncelog.clients.consumer.assigned_partitions import NO_NODE, Leader
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.topic_partition import TopicPartition


class ConsumerMetadata:
    """The metadata of one consumer. A pattern is matched, and partitions follow their leaders, on each response."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        subscription: SubscriptionState,
        wake: Callable[[], None],
    ) -> None:
        """Create it without a request. ``wake`` is called when leaders may have changed."""
        self._metadata = runtime.cluster.metadata
        self._subscription = subscription
        self._wake = wake
        self._topics_changed: list[Callable[[], None]] = []
        self.refresh = MetadataRefresh(
            runtime.cluster,
            runtime.backoff,
            self._topics,
            self._updated,
            max_age_seconds=config.metadata_max_age_ms / 1000,
            creates_topics=config.allow_auto_create_topics,
        )

    def on_topics_changed(self, call: Callable[[], None]) -> None:
        """Have this called after each response, once the subscription matches it."""
        self._topics_changed.append(call)

    def raise_error(self) -> None:
        """Raise ``BrokerRefused``, once, for a topic that cannot be read however often metadata is requested."""
        errors, self.refresh.errors = self.refresh.errors, {}
        for topic, error in errors.items():
            raise BrokerRefused(f"topic {topic}", Refusal(error=error))

    def leader_of(self, topic_partition: TopicPartition) -> Leader:
        """Return a partition's leader as far as it is known."""
        node_id = self._metadata.leader(topic_partition)
        return Leader(NO_NODE if node_id is None else node_id, self._metadata.leader_epoch(topic_partition))

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of those of the topics that exist."""
        return {topic: count for topic in topics if (count := self._metadata.partition_count(topic))}

    def learn_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], endpoints: Iterable[tuple[int, Address]]
    ) -> None:
        """Apply (leader id, leader epoch) of partitions that came with an error of a fetch (KIP-951)."""
        if self._metadata.take_leaders(leaders, endpoints):
            self._follow_leaders()

    def _topics(self) -> Collection[str] | None:
        return None if self._subscription.pattern is not None else self._subscription.metadata_topics

    def _updated(self, response: MetadataResponse) -> None:
        if self._subscription.pattern is not None:
            found = (topic for topic in response.topics if not topic.error_code and not topic.is_internal)
            self._subscription.match([topic.name for topic in found if topic.name is not None])
        self._follow_leaders()
        for call in self._topics_changed:
            call()

    def _follow_leaders(self) -> None:
        self._subscription.partitions.follow_leaders(self.leader_of)
        self._wake()
