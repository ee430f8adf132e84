"""The committed offsets of a group: fetched, and changed.

A commit belongs to the generation in which it was called. If the group is rebalanced before it is done, its partitions
may have other owners: it is not retried, and raises. Commits are sent one after the other, so that none overtakes one
that is being retried. A commit that has been overtaken already, because its task began later than a newer one, is left
out.

A consumer whose partitions the application assigned commits without a member id, which a group accepts while it has no
members.

The rules are those of Kafka's ``ConsumerCoordinator.java``.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from oncelog.clients.by_topic import by_topic, indexes_by_topic
from oncelog.clients.cluster import Cluster
from oncelog.clients.consumer.consumer_errors import RebalanceInProgress
from oncelog.clients.consumer.coordinator_link import NO_RESPONSE, CoordinatorLink
from oncelog.clients.consumer.group_membership import Generation, GroupMembership, MemberState
from oncelog.clients.consumer.member_reactions import COMMIT, Reaction, reaction
from oncelog.clients.errors import BrokerRefused, CommitFailed, OperationTimedOut, Refusal, error_code, require_success
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.retry import Backoff
from oncelog.clients.routes import Coordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from oncelog.protocol.topic_partition import TopicPartition

_NEWEST_WITH_TOPIC_NAMES: Final = 9
"""Of OffsetCommit and OffsetFetch; version 10 has topic ids."""
_UNKNOWN_ATTEMPTS: Final = 8
"""A topic that is still unknown after these attempts, some seconds, is not new but deleted. (Kafka's consumer tries to
the end.)"""
_NO_MEMBER: Final = Generation()
_UNSERVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_UNWRITABLE: Final = " (`oncelog health` shows whether its broker cannot write, because its disk is full)"


class OffsetCommits:
    """The committed offsets of one group. ``membership`` gives the generation where the group assigns partitions."""

    def __init__(self, cluster: Cluster, link: CoordinatorLink, backoff: Backoff, instance_id: str | None) -> None:
        self._cluster = cluster
        self._link = link
        self._backoff = backoff
        self._instance_id = instance_id
        self._turn = asyncio.Lock()
        self._places = 0
        self._done: dict[TopicPartition, int] = {}
        """The newest place whose commit of a partition has been done."""
        self._last_error: ErrorCode | None = None
        """The error of the last attempt of the commit whose turn it is; None before its first response."""

    # Committing

    def take_place(self) -> int:
        """Return the place of a commit that follows later: it is older than commits that take their places after it."""
        self._places += 1
        return self._places

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        membership: GroupMembership | None,
        seconds: float,
        place: int | None = None,
    ) -> None:
        """Commit, with retries. ``membership`` is None for partitions that the application assigned.

        ``place`` is that of a commit that is begun later than it was called.

        Raises ``RebalanceInProgress`` and ``CommitFailed`` as the group has it, ``InstanceFenced``, ``BrokerRefused``
        for an offset that the coordinator does not want, and ``OperationTimedOut``: it may have been done then.
        """
        if not offsets:
            return
        place = self.take_place() if place is None else place
        generation = _NO_MEMBER if membership is None else _stable_generation(membership)
        try:
            async with asyncio.timeout(seconds), self._turn:
                left = {tp: offset for tp, offset in offsets.items() if self._done.get(tp, 0) < place}
                if left:
                    self._last_error = None
                    await self._repeat(left, generation, membership)
                    self._done |= dict.fromkeys(left, place)
        except TimeoutError:
            reason = "" if self._last_error is None else f": the last attempt ended with {self._last_error.name}"
            hint = _UNWRITABLE if self._last_error in _UNSERVED else ""
            raise OperationTimedOut(
                f"group {self._link.group_id}: not committed within {seconds:g} s{reason}{hint}"
            ) from None

    async def _repeat(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: Generation,
        membership: GroupMembership | None,
    ) -> None:
        attempt = 0
        left = offsets
        while membership is None or membership.generation is generation:
            failed = await self._try(left, generation, membership)
            if not failed:
                return
            self._last_error = next(iter(failed.values()))
            unknown = [tp for tp, error in failed.items() if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            if attempt >= _UNKNOWN_ATTEMPTS and len(unknown) == len(failed):
                raise self._refused(unknown[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            await asyncio.sleep(self._backoff.pause_seconds(attempt))
            attempt += 1
            left = {topic_partition: offsets[topic_partition] for topic_partition in failed}
        raise _too_late(membership)

    async def _try(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: Generation,
        membership: GroupMembership | None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Send one commit. Return the partitions to retry; raises for errors that a retry cannot mend."""
        request = OffsetCommitRequest(
            group_id=self._link.group_id,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=None if membership is None else self._instance_id,
            topics=_commit_topics(offsets),
        )
        try:
            response = await self._link.send(request, OffsetCommitResponse, at_most=_NEWEST_WITH_TOPIC_NAMES)
        except NO_RESPONSE:
            return dict.fromkeys(offsets, ErrorCode.NETWORK_EXCEPTION)
        except BrokerRefused as refused:  # To say who coordinates the group.
            if not refused.is_retriable:
                raise
            return dict.fromkeys(offsets, refused.refusal.error)
        failed = {
            TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code
        }
        for topic_partition, error in failed.items():
            self._judge(topic_partition, error, generation, membership)
        return failed

    def _refused(self, partition: TopicPartition, error: ErrorCode) -> BrokerRefused:
        return BrokerRefused(f"group {self._link.group_id}, {partition}", Refusal(error=error))

    def _judge(
        self, partition: TopicPartition, error: ErrorCode, sent: Generation, membership: GroupMembership | None
    ) -> None:
        """Return if the commit may be retried, else raise."""
        to = reaction(COMMIT, error)
        if to is Reaction.FIND_COORDINATOR:
            self._link.forget()
        elif to is Reaction.FAIL or (membership is None and to is Reaction.REJOIN):
            raise self._refused(partition, error)
        elif to is not Reaction.RETRY:
            raise self._rejected(to, error, sent, membership)

    def _rejected(
        self, to: Reaction, error: ErrorCode, sent: Generation, membership: GroupMembership | None
    ) -> Exception:
        """Return why this member may not commit, and apply what that means for its membership."""
        if membership is None:
            return CommitFailed(f"group {self._link.group_id} has members: {error.name}")
        if membership.generation is not sent:
            return _too_late(membership)
        if to is Reaction.REJOIN:
            membership.request_rejoin("a commit found the group being rebalanced")
            return RebalanceInProgress(f"group {self._link.group_id} is being rebalanced")
        if to is Reaction.FENCED:
            return membership.fenced()
        keep = to is Reaction.REJOIN_WITHOUT_GENERATION
        membership.lose_generation(f"OffsetCommit returned {error.name}", keep_member_id=keep)
        return CommitFailed(f"group {self._link.group_id} has gone on without this member: {error.name}")

    # Fetching

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these, without partitions that have none.

        Waits while an open transaction may change them (KIP-447). Raises ``ClientError``.
        """
        if not partitions:
            return {}
        indexes = indexes_by_topic(partitions)
        requested = [
            OffsetFetchRequestTopics(name=name, partition_indexes=of_topic) for name, of_topic in indexes.items()
        ]
        request = OffsetFetchRequest(
            group_id=self._link.group_id,
            topics=[
                OffsetFetchRequestTopic(name=each.name, partition_indexes=each.partition_indexes) for each in requested
            ],
            groups=[OffsetFetchRequestGroup(group_id=self._link.group_id, topics=requested)],
            require_stable=True,
        )
        response = await self._cluster.call(
            Coordinator.of_group(self._link.group_id),
            request,
            OffsetFetchResponse,
            errors=_fetch_errors,
            at_most=_NEWEST_WITH_TOPIC_NAMES,
        )
        for error in _fetch_errors(response):
            require_success(f"group {self._link.group_id}", error)
        return {
            TopicPartition(topic.name, partition.partition_index): OffsetAndMetadata(
                partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
            )
            for topic in _of_group(response).topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        }


def _stable_generation(membership: GroupMembership) -> Generation:
    membership.raise_failure()
    if membership.state is not MemberState.STABLE:
        raise _too_late(membership)
    return membership.generation


def _too_late(membership: GroupMembership) -> RebalanceInProgress | CommitFailed:
    if membership.is_rebalancing:
        return RebalanceInProgress("the group is being rebalanced: poll, and commit what is still assigned then")
    return CommitFailed("this consumer is not a member of its group (any more): its partitions have other owners now")


def _commit_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[OffsetCommitRequestTopic]:
    requested = by_topic(
        (
            topic_partition,
            OffsetCommitRequestPartition(
                partition_index=topic_partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            ),
        )
        for topic_partition, committed in offsets.items()
    )
    return [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in requested.items()]


def _of_group(response: OffsetFetchResponse) -> OffsetFetchResponse | OffsetFetchResponseGroup:
    return response.groups[0] if response.groups else response


def _fetch_errors(response: OffsetFetchResponse) -> list[int]:
    group = _of_group(response)
    return [group.error_code, *(partition.error_code for topic in group.topics for partition in topic.partitions)]
