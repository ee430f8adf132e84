"""The effect of rebalances on the assignment, step by step, always inside ``poll``.

Before joining, the owned partitions are committed and given up as the protocol says. With the *eager* one all are given
up, and no member reads until the group has a new assignment. With the *cooperative* one (KIP-429) only those of
unsubscribed topics are; the others go on being read, and those that the new assignment lacks are given up when it
comes. That leads to a second rebalance, in which their new owners get them.

Partitions are *revoked* while this is still a member: the listener may commit, and an automatic commit is done first.
They are *lost* when the generation is: they may have other owners already.

The leader also watches the topics of the whole group. New partitions, and new topics that match a pattern, begin a
rebalance.

The rules are those of Kafka's ``ConsumerCoordinator.java``.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.clients.consumer.assignors import ASSIGNORS
from oncelog.clients.consumer.assignors.assignor import NO_GENERATION
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_errors import AssignmentFailed
from oncelog.clients.consumer.consumer_metadata import ConsumerMetadata
from oncelog.clients.consumer.coordinator_link import CoordinatorLink
from oncelog.clients.consumer.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.clients.consumer.group_membership import GroupMembership, Joined
from oncelog.clients.consumer.offset_commits import OffsetCommits
from oncelog.clients.consumer.rebalance_listener import RebalanceListener
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.errors import require_success
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from oncelog.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_LEAVE_SECONDS: Final = 1.0
"""Seconds for the response to LeaveGroup if the listener failed or the time for closing is up."""

Listen = Callable[[Collection[TopicPartition]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Takeover:
    """A new assignment that the application has not heard of in full: polls go on with it where one was cancelled."""

    assigned: Sequence[TopicPartition]
    added: Sequence[TopicPartition]
    revoked: frozenset[TopicPartition]


class Rebalances:
    """The rebalances of one member: from its group membership to its subscription."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        link: CoordinatorLink,
        subscription: SubscriptionState,
        metadata: ConsumerMetadata,
        commits: OffsetCommits,
        wake: Callable[[], None],
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._commits = commits
        self._tasks = runtime.tasks
        self._wake = wake
        self._link = link
        self.membership = GroupMembership(
            config, runtime, link, subscriptions=self.subscriptions, assign_members=self.assign_members, wake=wake
        )
        self.listener = RebalanceListener()
        self.group_metadata = ConsumerGroupMetadata(group_id=link.group_id, group_instance_id=config.group_instance_id)
        """This member's identity, as of the last rebalance whose end it has seen."""
        self._joined_topics: frozenset[str] | None = None
        self._last_assignment: Sequence[TopicPartition] = ()
        self._last_generation = NO_GENERATION
        self._assigned_sizes: Mapping[str, int] | None = None
        """Where this member leads: the topics' sizes that the assignment was made for."""
        self._commit: asyncio.Task[None] | None = None
        """The commit before partitions are given up."""
        self._matching: asyncio.Task[None] | None = None
        """The metadata request for a pattern's topics."""
        self._takeover: _Takeover | None = None

    def listen(self, listener: RebalanceListener) -> None:
        """Use the listener of a new subscription."""
        self.listener = listener
        self._forget_matching()

    # In poll

    @property
    def is_due(self) -> bool:
        """Return whether there is anything to do."""
        membership = self.membership
        if membership.failure is not None or membership.rejoin_needed or membership.is_joining:
            return True
        return self._takeover is not None or self._joined_topics != self._subscription.topics

    async def proceed(self) -> None:
        """Do the steps that can be done now. Raises what the application must know, also from its listener.

        Awaits only the listener: everything else that takes time goes on between polls, and wakes the next one.
        """
        membership = self.membership
        membership.raise_failure()
        if self._joined_topics is not None and self._joined_topics != self._subscription.topics:
            membership.request_rejoin("the subscription has changed")
        while True:
            if membership.generation.is_lost:
                await self._lose_partitions()
            if self._takeover is not None:
                if not await self._take_over(self._takeover):
                    return
            elif membership.is_joining:
                joined = membership.take_joined()
                if joined is not None:
                    self._begin_takeover(joined)
                elif membership.is_joining:
                    return
            elif not membership.rejoin_needed:
                return
            elif not membership.needs_prepare:
                membership.start_joining()
                return
            elif not await self._prepare():
                return

    def topics_changed(self) -> None:
        """Request a rebalance if this member leads, and metadata has changed the partitions to assign."""
        if self._assigned_sizes is not None and self._assigned_sizes != self._metadata.partition_counts(
            self._subscription.metadata_topics
        ):
            self.membership.request_rejoin("topics of the group have changed")

    # Joining

    def subscriptions(self) -> list[JoinGroupRequestProtocol]:
        """Return this member's subscription for the leader, once for each assignor that it supports."""
        topics = self._subscription.topics
        self._joined_topics = topics
        owned = list(self._subscription.partitions)
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

    async def assign_members(self, response: JoinGroupResponse) -> Mapping[str, bytes]:
        """Return every member's assignment, computed as the leader of the group."""
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in response.members
        }
        assignor = ASSIGNORS.get(response.protocol_name or "")
        if assignor is None:
            raise AssignmentFailed(f"the group has chosen {response.protocol_name}, which was not offered")
        topics = frozenset[str]().union(*(member.topics for member in members.values()))
        self._subscription.group_topics = topics
        await self._metadata.refresh.fresh()
        sizes = self._metadata.partition_counts(topics)
        if response.skip_assignment:  # A static leader came back: the others go on with what they have.
            self._assigned_sizes = await self._sizes_as_assigned()
            return {}
        self._assigned_sizes = sizes
        assignments = assignor.assign(sizes, members)
        return {member_id: encode_assignment(partitions) for member_id, partitions in assignments.items()}

    async def _sizes_as_assigned(self) -> Mapping[str, int]:
        """Return the numbers of partitions that the group was assigned: no member watched topics without its leader.

        Java's consumer assumes that nothing has changed meanwhile.
        """
        response = await self._link.send(DescribeGroupsRequest(groups=[self._link.group_id]), DescribeGroupsResponse)
        require_success(f"group {self._link.group_id}", response.groups[0].error_code)
        assigned = [member.member_assignment for member in response.groups[0].members if member.member_assignment]
        return Counter(partition.topic for each in assigned for partition in decode_assignment(each))

    # What becomes of partitions

    async def _lose_partitions(self) -> None:
        """Drop the owned partitions with the generation: they may have other owners already."""
        self._takeover = None
        self._stop_commit()
        await self._give_up(self._subscription.assignment, self.listener.on_partitions_lost)

    async def _prepare(self) -> bool:
        """Commit and revoke what must be given up before joining. Return False if that is not done yet."""
        membership, generation = self.membership, self.membership.generation
        if self._subscription.pattern is not None and not self._has_matched():
            return False
        owned = self._subscription.assignment
        leaves_out = () if self._config.is_cooperative else owned
        seconds = self._config.max_poll_interval_ms / 1000
        if not generation.is_lost and not self._has_committed(owned, leaves_out, seconds):
            return False
        self._forget_matching()
        self._subscription.group_topics = frozenset()
        self._assigned_sizes = None
        unwanted = frozenset(tp for tp in owned if tp.topic not in self._subscription.topics)
        membership.needs_prepare = False
        try:
            await self._give_up(unwanted if self._config.is_cooperative else owned, self.listener.on_partitions_revoked)
        except asyncio.CancelledError:
            membership.needs_prepare = True
            raise
        return True

    def _has_matched(self) -> bool:
        """Return whether the pattern has been matched again, so that one new topic leads to one rebalance."""
        if self._matching is None:
            self._matching = self._tasks.spawn(self._metadata.refresh.fresh(), "topics of a pattern")
            self._matching.add_done_callback(lambda _: self._wake())
        return self._matching.done()

    def _forget_matching(self) -> None:
        if self._matching is not None:
            self._matching.cancel()
            self._matching = None

    def _has_committed(
        self, partitions: Collection[TopicPartition], given_up: Collection[TopicPartition], seconds: float
    ) -> bool:
        """Commit, if commits are automatic, before partitions get other owners. Return False until that is done.

        ``given_up`` are those of the partitions whose records are not returned after this commit.
        """
        if not self._config.enable_auto_commit:
            return True
        if self._commit is None:
            self._subscription.partitions.mark_pending_revocation(given_up)
            consumed = {
                tp: offset for tp, offset in self._subscription.partitions.consumed().items() if tp in partitions
            }
            committing = self._commits.commit(consumed, self.membership, seconds, self._commits.take_place())
            self._commit = self._tasks.spawn(committing, "commit before partitions are given up", log_failure=False)
            self._commit.add_done_callback(lambda _: self._wake())
        if not self._commit.done():
            return False
        task, self._commit = self._commit, None
        if (error := task.exception()) is not None:
            _log.warning("commit before revocation failed, records will be read again: %s", error)
        return True

    def _stop_commit(self) -> None:
        if self._commit is not None:
            self._commit.cancel()
            self._commit = None

    async def _call_listener(self, listen: Listen, partitions: Collection[TopicPartition]) -> None:
        """Call the listener, within ``max_poll_interval_ms``: one that does not return must not keep partitions."""
        membership = self.membership
        before = membership.poll_deadline
        now = asyncio.get_running_loop().time()
        membership.poll_deadline = now + self._config.max_poll_interval_ms / 1000
        try:
            await listen(partitions)
        finally:
            membership.poll_deadline = before

    async def _give_up(self, partitions: frozenset[TopicPartition], listen: Listen) -> None:
        """Call the listener, and then remove these partitions from the assignment.

        If it is cancelled, the listener has not done its work: the partitions stay, and the next poll calls it again.
        """
        if not partitions:
            return
        is_cancelled = False
        try:
            await self._call_listener(listen, sorted(partitions))
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            if not is_cancelled:
                kept = [tp for tp in self._subscription.partitions if tp not in partitions]
                self._subscription.assign_from_group(kept)

    # A new assignment

    def _begin_takeover(self, joined: Joined) -> None:
        """Begin to apply an assignment. Partitions to be revoked lead to a second rebalance, which reassigns them."""
        assigned = sorted(decode_assignment(joined.assignment))
        if not self._subscription.accepts(assigned):
            self.membership.request_rejoin("the assignment does not match the subscription")
            return
        self._take_identity(joined, assigned)
        owned = self._subscription.assignment
        added = [tp for tp in assigned if tp not in owned]
        self._takeover = _Takeover(assigned, added, owned.difference(assigned))
        if self._takeover.revoked:
            self.membership.request_rejoin("partitions have been given up")
        self.topics_changed()  # Metadata that came before the end of the rebalance could not begin another one.

    async def _take_over(self, takeover: "_Takeover") -> bool:
        """Apply a new assignment: revoke, then add. Return False if that is not done yet."""
        revoked = takeover.revoked & self._subscription.assignment
        seconds = self._config.request_timeout_ms / 1000
        if revoked and not self._has_committed(revoked, revoked, seconds):
            return False
        try:
            await self._give_up(revoked, self.listener.on_partitions_revoked)
        finally:
            if self._subscription.assignment.isdisjoint(takeover.revoked):
                await self._add(takeover)
        return True

    async def _add(self, takeover: "_Takeover") -> None:
        self._subscription.assign_from_group(takeover.assigned)
        self._takeover = None
        try:
            await self._call_listener(self.listener.on_partitions_assigned, takeover.added)
        except asyncio.CancelledError:
            self._takeover = takeover  # The next poll calls the listener again.
            raise

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

    async def leave(self, reason: str) -> None:
        """Revoke every partition, and leave the group."""
        membership = self.membership
        self._takeover = None
        self._stop_commit()
        self._forget_matching()
        is_late = membership.generation.is_lost or membership.is_rebalancing
        listen = self.listener.on_partitions_lost if is_late else self.listener.on_partitions_revoked
        patience: float | None = _LEAVE_SECONDS
        try:
            await self._give_up(self._subscription.assignment, listen)
            patience = None
        finally:
            self._joined_topics = None
            self._assigned_sizes = None
            leaving = self._tasks.spawn(membership.leave(reason), "leaving the group")
            await asyncio.wait({leaving}, timeout=patience)
