"""A consumer's part in its group: being a member, taking part in rebalances, committing."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.consumer.assigned_partitions import TIMER_SLACK
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_metadata import ConsumerMetadata
from oncelog.clients.consumer.coordinator_link import CoordinatorLink
from oncelog.clients.consumer.offset_commits import OffsetCommits
from oncelog.clients.consumer.rebalance_listener import RebalanceListener
from oncelog.clients.consumer.rebalances import Rebalances
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.errors import ClientError
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.1
"""After an automatic commit that failed for what passes."""


class GroupConsumption:
    """Made for a consumer with a group id, whether it subscribes or is given partitions."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        group_cluster: Cluster,
        subscription: SubscriptionState,
        metadata: ConsumerMetadata,
        wake: Callable[[], None],
    ) -> None:
        """Create a member that has not joined. ``group_cluster`` has the connections to the coordinator."""
        self._config = config
        self._subscription = subscription
        self._tasks = runtime.tasks
        assert config.group_id is not None, "a consumer without a group has no part in one"
        self._link = CoordinatorLink(group_cluster, config.group_id)
        self._commits = OffsetCommits(runtime.cluster, self._link, runtime.backoff, config.group_instance_id)
        self._rebalances = Rebalances(config, runtime, self._link, subscription, metadata, self._commits, wake)
        metadata.on_topics_changed(self._topics_changed)
        self._membership = self._rebalances.membership
        self.next_commit_at = math.inf
        """When ``commit_if_due`` has something to do, on the loop's clock."""
        self._committing: asyncio.Task[None] | None = None
        """One automatic commit at a time."""

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Return this member's identity, as of the last rebalance whose end a poll has seen."""
        return self._rebalances.group_metadata

    def listen(self, listener: RebalanceListener | None) -> None:
        self._rebalances.listen(listener or RebalanceListener())

    # Polling

    def enter_poll(self) -> None:
        """Suspend ``max_poll_interval_ms``: the application is inside ``poll``."""
        self._membership.poll_deadline = math.inf

    def leave_poll(self, now: float) -> None:
        self._membership.poll_deadline = now + self._config.max_poll_interval_ms / 1000

    @property
    def is_due(self) -> bool:
        """Return whether there is anything for ``rebalance`` to do."""
        return self._subscription.shares_with_group and self._rebalances.is_due

    async def rebalance(self) -> None:
        """Do this member's next steps of a rebalance. Raises what the application must know."""
        try:
            await self._rebalances.proceed()
        finally:
            self.restart_commits()

    def _topics_changed(self) -> None:
        """Check for a rebalance after new metadata."""
        if self._subscription.shares_with_group:
            self._rebalances.topics_changed()

    async def leave(self, reason: str) -> None:
        """Revoke the partitions that the group has assigned, and leave it."""
        if self._subscription.shares_with_group:
            await self._rebalances.leave(reason)

    # Committing

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float, place: int | None = None
    ) -> None:
        membership = self._membership if self._subscription.shares_with_group else None
        await self._commits.commit(offsets, membership, seconds, place)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        return await self._commits.committed(partitions)

    def restart_commits(self) -> None:
        """Begin a new interval of automatic commits: the assignment may have changed."""
        if self._config.enable_auto_commit:
            self.next_commit_at = asyncio.get_running_loop().time() + self._config.auto_commit_interval_ms / 1000

    def commit_if_due(self, now: float) -> None:
        """Commit what polls have returned, if it is time to: called before a poll returns more."""
        if now < self.next_commit_at - TIMER_SLACK:
            return
        self.next_commit_at = now + self._config.auto_commit_interval_ms / 1000
        self.commit_soon()

    def commit_soon(self) -> None:
        """Commit what polls have returned, without waiting for it, where the consumer is to do that by itself.

        Also positions that have not moved since the last commit: a group without members keeps a committed offset for
        ``offsets.retention.minutes`` after its last commit only.
        """
        if not self._config.enable_auto_commit or (self._committing is not None and not self._committing.done()):
            return
        offsets = self._subscription.partitions.consumed()
        if offsets:
            committing = self._commit_automatically(offsets, self._commits.take_place())
            self._committing = self._tasks.spawn(committing, "automatic commit")

    async def _commit_automatically(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], place: int) -> None:
        try:
            await self.commit(offsets, self._config.request_timeout_ms / 1000, place)
        except ClientError as error:
            _log.info("group %s: automatic commit failed: %s", self._link.group_id, error)
            if error.is_retriable:
                self.next_commit_at = asyncio.get_running_loop().time() + _RETRY_SECONDS

    async def commit_finally(self, seconds: float) -> None:
        """Commit what polls have returned, and wait for it: there is no other opportunity."""
        if self._config.enable_auto_commit:
            try:
                await self.commit(self._subscription.partitions.consumed(), seconds)
            except ClientError as error:
                _log.warning(
                    "group %s: commit on close failed, records will be read again: %s", self._link.group_id, error
                )
