"""The operators' settings for throttling replication, kept in the two quotas of a broker while it runs (KIP-73).

The rates are dynamic settings of brokers (``leader.`` and ``follower.replication.throttled.rate``), the replicas that
they hold for are settings of topics (``….replication.throttled.replicas``): ``partition:broker,…``, or ``*`` for all.
Loaded only by members of a cluster.
"""

from collections.abc import Callable

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic_config import current_config
from oncelog.broker.config.settings import INT64_MAX
from oncelog.broker.config.topic_config import FOLLOWER_THROTTLE, LEADER_THROTTLE, TOPIC_SETTINGS, validate
from oncelog.broker.replication.replication_quota import NO_LIMIT, ReplicationQuota
from oncelog.coordinator.controller.cluster_image import MetadataCache, MetadataChange
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.config_repository import ConfigRepository, Overrides


class ReplicationThrottles:
    """Listens to the dynamic configuration, from before it is loaded."""

    def __init__(
        self, config: BrokerConfig, broker_id: int, *, configs: ConfigRepository, metadata: MetadataCache
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._configs = configs
        self.leader = self._quota()
        self.follower = self._quota()
        self.on_change: Callable[[], None] = _ignore
        """Called when something may be throttled less, or more."""
        self._take_rates()
        configs.add_listener(self._on_overrides)
        metadata.add_listener(self._on_metadata_change)

    def _quota(self) -> ReplicationQuota:
        config = self._config
        return ReplicationQuota(
            window_count=config.replication_quota_window_num,
            window_seconds=config.replication_quota_window_size_seconds,
        )

    def _on_overrides(self, resource: ConfigResource, overrides: Overrides) -> None:
        if resource.type is ResourceType.TOPIC:
            self._take_replicas(self.leader, resource.name, overrides.get(LEADER_THROTTLE))
            self._take_replicas(self.follower, resource.name, overrides.get(FOLLOWER_THROTTLE))
        else:
            self._take_rates()
        self.on_change()

    def _take_rates(self) -> None:
        config = current_config(self._config, self._configs, self._broker_id)
        self.leader.set_limit(_limit(config.leader_replication_throttled_rate))
        self.follower.set_limit(_limit(config.follower_replication_throttled_rate))

    def _take_replicas(self, quota: ReplicationQuota, topic: str, text: str | None) -> None:
        if text is None or validate(LEADER_THROTTLE, text) is not None:
            quota.release(topic)
        else:
            quota.throttle(topic, throttled_partitions(text, self._broker_id))

    def _on_metadata_change(self, change: MetadataChange) -> None:
        """Drop what was set for a deleted topic: a later one of its name has its own settings."""
        for topic in change.topics:
            if change.after.topic(topic) is None:
                self.leader.release(topic)
                self.follower.release(topic)


def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions whose replica on this broker a topic's setting names; None: all."""
    replicas: tuple[str, ...] = TOPIC_SETTINGS[LEADER_THROTTLE].parse(text)
    if replicas == ("*",):
        return None
    pairs = (tuple(map(int, replica.split(":"))) for replica in replicas)
    return frozenset(partition for partition, broker in pairs if broker == broker_id)


def _limit(rate: int) -> float:
    return NO_LIMIT if rate == INT64_MAX else float(rate)


def _ignore() -> None:
    """Do nothing: no replica is copied yet."""
