"""What rebalances do to the assignment, step by step, always inside ``poll``.

Before joining, what is owned is settled. With the *eager* protocol everything is given up: nobody reads anything until
the group has a new assignment. With the *cooperative* one (KIP-429) only what is no longer subscribed to; the rest goes
on being read, and what the new assignment lacks is given up when it comes. Giving something up means a second
rebalance, in which its new owner gets it.

Partitions are *revoked* while this is still a member: the listener may commit, and what ``enable_auto_commit`` has to
commit is committed first. They are *lost* when the generation is: they may be others' already.

The leader also watches the topics of the whole group. New partitions, and new topics that match a pattern, begin a
rebalance.

The rules are those of Kafka's ``ConsumerCoordinator.java``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from clients.background_tasks import BackgroundTasks
from clients.cluster_metadata import ClusterMetadata
from clients.consumer.assignors import ASSIGNORS
from clients.consumer.assignors.assignor import NO_GENERATION
from clients.consumer.consumer_config import ConsumerConfig
from clients.consumer.consumer_errors import AssignmentFailed
from clients.consumer.coordinator_link import CoordinatorLink
from clients.consumer.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from clients.consumer.group_membership import GroupMembership, Joined
from clients.consumer.group_metadata import ConsumerGroupMetadata
from clients.consumer.offset_and_metadata import OffsetAndMetadata
from clients.consumer.offset_commits import OffsetCommits
from clients.consumer.rebalance_listener import RebalanceListener
from clients.consumer.subscription_state import SubscriptionState
from clients.errors import ClientError
from clients.metadata_refresh import MetadataRefresh
from clients.retry import Backoff
from protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


Tell = Callable[[Collection[TopicPartition]], Awaitable[None]]


class Rebalances:
    """Between the membership of a group and the subscription."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: CoordinatorLink,
        subscription: SubscriptionState,
        metadata: ClusterMetadata,
        refresh: MetadataRefresh,
        commits: OffsetCommits,
        tasks: BackgroundTasks,
        backoff: Backoff,
        wake: Callable[[], None],
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._refresh = refresh
        self._commits = commits
        self._tasks = tasks
        self.membership = GroupMembership(
            link, config, tasks, backoff, offers=self.offers, share_out=self.share_out, wake=wake
        )
        self.listener = RebalanceListener()
        self.group_metadata = ConsumerGroupMetadata(group_id=link.group_id, group_instance_id=config.group_instance_id)
        """Who this consumer is, as of the last rebalance that it has seen the end of."""
        self._joined_topics: frozenset[str] | None = None
        self._last_assignment: Sequence[TopicPartition] = ()
        self._last_generation = NO_GENERATION
        self._assigned_sizes: Mapping[str, int] | None = None
        """Where this member leads: the topics' sizes that the assignment was made for."""
        self._commit: asyncio.Task[None] | None = None
        """What is being committed before partitions are given up."""

    # In poll

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        membership = self.membership
        if membership.failure is not None or membership.rejoin_needed or membership.is_joining:
            return True
        return self._joined_topics != self._subscription.topics

    async def proceed(self, deadline: float) -> None:
        """Do what can be done now. Raises what the application must hear of, also from its listener.

        ``deadline`` (of the loop's clock) bounds only the commit before partitions are given up.
        """
        membership = self.membership
        membership.raise_failure()
        if self._joined_topics is not None and self._joined_topics != self._subscription.topics:
            membership.request_rejoin("the subscription has changed")
        while membership.rejoin_needed or membership.is_joining:
            if not membership.is_joining:
                if membership.needs_prepare and not await self._prepare(deadline):
                    return
                membership.start_joining()
                return
            joined = membership.take_joined()
            if joined is not None:
                await self._complete(joined)
            elif membership.is_joining:
                return

    def topics_changed(self) -> None:
        """There is new metadata: where this member leads, the assignment may be out of date."""
        if self._assigned_sizes is not None and self._assigned_sizes != self._sizes(self._subscription.metadata_topics):
            self.membership.request_rejoin("topics of the group have changed")

    # Joining

    def offers(self) -> list[JoinGroupRequestProtocol]:
        """What this member tells the leader, once for each assignor that it knows."""
        topics = self._subscription.topics
        self._joined_topics = topics
        owned = list(self._subscription)
        generation_id = self.membership.generation.generation_id
        return [
            JoinGroupRequestProtocol(
                name=name,
                metadata=encode_subscription(
                    topics,
                    owned=owned,
                    generation_id=generation_id,
                    user_data=ASSIGNORS[name].user_data(self._last_assignment, self._last_generation),
                    rack_id=self._config.client_rack,
                ),
            )
            for name in self._config.assignors
        ]

    async def share_out(self, answer: JoinGroupResponse) -> Mapping[str, bytes]:
        """Everybody's assignment, where this member was made the leader."""
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in answer.members
        }
        assignor = ASSIGNORS.get(answer.protocol_name or "")
        if assignor is None:
            raise AssignmentFailed(f"the group has chosen {answer.protocol_name}, which was not offered")
        topics = frozenset[str]().union(*(member.topics for member in members.values()))
        self._subscription.group_topics = topics
        await self._refresh.fresh()
        sizes = self._sizes(topics)
        self._assigned_sizes = sizes
        if answer.skip_assignment:  # A static leader came back: the others go on with what they have.
            return {}
        assignments = assignor.assign(sizes, members)
        return {member_id: encode_assignment(partitions) for member_id, partitions in assignments.items()}

    def _sizes(self, topics: Collection[str]) -> Mapping[str, int]:
        """How many partitions the topics have that there are."""
        return {topic: count for topic in topics if (count := self._metadata.partition_count(topic))}

    # What becomes of partitions

    async def _prepare(self, deadline: float) -> bool:
        """Settle what is owned; False if that is not done yet."""
        membership = self.membership
        if self._subscription.pattern is not None and not await self._match_again(deadline):
            return False
        if not membership.generation.is_lost and not await self._commit_first(deadline):
            return False
        membership.needs_prepare = False
        self._commit = None
        self._subscription.group_topics = frozenset()
        self._assigned_sizes = None
        owned = self._subscription.assignment
        if membership.generation.is_lost:
            await self._give_up(owned, self.listener.on_partitions_lost)
        elif not self._config.is_cooperative:
            await self._give_up(owned, self.listener.on_partitions_revoked)
        else:
            unwanted = frozenset(tp for tp in owned if tp.topic not in self._subscription.topics)
            await self._give_up(unwanted, self.listener.on_partitions_revoked)
        return True

    async def _match_again(self, deadline: float) -> bool:
        """All members look for topics before they join, so that one new topic is one rebalance."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._refresh.fresh()
        except TimeoutError:
            return False
        return True

    async def _commit_first(self, deadline: float) -> bool:
        """Where the consumer commits by itself: do so before others may begin where it ends."""
        if not self._config.enable_auto_commit:
            return True
        if self._commit is None:
            if not self._config.is_cooperative:
                self._subscription.mark_pending_revocation()
            seconds = self._config.max_poll_interval_ms / 1000
            committing = self._commits.commit(self._subscription.consumed(), self.membership, seconds)
            self._commit = self._tasks.spawn(committing, "commit before a rebalance", log_failure=False)
        now = asyncio.get_running_loop().time()
        await asyncio.wait({self._commit}, timeout=max(0.0, deadline - now))
        if not self._commit.done():
            return False
        task, self._commit = self._commit, None
        if (error := task.exception()) is not None:
            _log.warning("records will be read again: before the rebalance nothing was committed: %s", error)
        return True

    async def _give_up(self, partitions: frozenset[TopicPartition], tell: Tell) -> None:
        """Tell the application while it can still commit; then read them no more."""
        if not partitions:
            return
        try:
            await tell(sorted(partitions))
        finally:
            self._subscription.assign_from_group([tp for tp in self._subscription if tp not in partitions])

    async def _complete(self, joined: Joined) -> None:
        """Take over a new assignment."""
        assigned = sorted(decode_assignment(joined.assignment))
        if not self._subscription.accepts(assigned):
            self.membership.request_rejoin("the assignment does not match the subscription")
            return
        self._take_identity(joined, assigned)
        owned = self._subscription.assignment
        try:
            await self._revoke(owned.difference(assigned))
        finally:
            self._subscription.assign_from_group(assigned)
            await self.listener.on_partitions_assigned([tp for tp in assigned if tp not in owned])

    def _take_identity(self, joined: Joined, assigned: Sequence[TopicPartition]) -> None:
        self.group_metadata = ConsumerGroupMetadata(
            group_id=self.group_metadata.group_id,
            generation_id=joined.generation.generation_id,
            member_id=joined.generation.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        self._last_assignment = assigned
        self._last_generation = joined.generation.generation_id
        if self._subscription.pattern is not None:  # The leader may have seen more topics that match.
            self._subscription.topics |= {topic for topic, _ in assigned}
            self._joined_topics = self._subscription.topics

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Give up what is to be another member's, and make the rebalance in which it becomes that."""
        if not partitions:
            return
        self.membership.request_rejoin("partitions have been given up")
        if self._config.enable_auto_commit:
            consumed = self._subscription.consumed()
            await self._commit_revoked({tp: offset for tp, offset in consumed.items() if tp in partitions})
        await self._give_up(partitions, self.listener.on_partitions_revoked)

    async def _commit_revoked(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            await self._commits.commit(offsets, self.membership, self._config.request_timeout_ms / 1000)
        except ClientError as error:
            _log.warning("records will be read again: before giving partitions up nothing was committed: %s", error)

    async def leave(self, reason: str) -> None:
        """Give everything up, and leave the group."""
        membership = self.membership
        is_late = membership.generation.is_lost or membership.is_rebalancing
        tell = self.listener.on_partitions_lost if is_late else self.listener.on_partitions_revoked
        try:
            await self._give_up(self._subscription.assignment, tell)
        finally:
            self._joined_topics = None
            self._assigned_sizes = None
            await membership.leave(reason)
