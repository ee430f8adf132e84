"""TxnOffsetCommit: commit offsets as part of a producer's transaction.

The transaction's coordinator is asked whether the group's partition of the offsets topic is in an ongoing transaction
of this producer, or, from version 5 on, told to add it (``broker.replication.transaction_verification``). A commit that
comes after the end of its transaction would wait for a marker that nobody ever writes, and no consumer that insists on
stable offsets could go on (KIP-890). The answer and the append are one step, or a guard tells that no marker came in
between.

From version 3 on the consumer's group metadata comes along, so that a producer whose consumer fell out of the group is
fenced like any other commit of it (KIP-447). Clients of versions 0 and 1 cannot bear COORDINATOR_LOAD_IN_PROGRESS, and
those before 4 TRANSACTION_ABORTABLE. Clients of version 5 do not say beforehand that they will commit offsets.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.dispatch import Outcome, RequestContext, handles
from broker.replication.transaction_verification import Errors, Pending
from broker.security.authorizer import Operation, ResourceType
from broker.sliced_work import new_budget
from coordinator.controller.cluster_image import GROUP_METADATA_TOPIC_NAME
from coordinator.group.offset_requests import MANY_OFFSETS, Committer, EncodedCommit, OffsetToCommit, PartitionErrors
from coordinator.group.shard import Producer
from coordinator.runtime import Reply
from coordinator.transaction.state import ProducerIdAndEpoch
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker

_FIRST_THAT_KNOWS_LOADING = 2

_Outcome: TypeAlias = TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]


def refuse_txn_offset_commit(
    request: TxnOffsetCommitRequest, version: int, error: ErrorCode
) -> TxnOffsetCommitResponse:
    """The error for every partition."""
    errors = {
        TopicPartition(topic.name, partition.partition_index): error
        for topic in request.topics
        for partition in topic.partitions
    }
    return _response(request, version, errors)


@handles(ApiKey.TXN_OFFSET_COMMIT, versions="0-5", error_response=refuse_txn_offset_commit)
def handle_txn_offset_commit(broker: "Broker", context: RequestContext, request: TxnOffsetCommitRequest) -> Outcome:
    version = context.api_version
    authorize = broker.authorizer.authorize
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse_txn_offset_commit(request, version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_txn_offset_commit(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: PartitionErrors = {}
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        _judge_topic(broker, context, topic, offsets, refused)
    if not offsets:
        return _response(request, version, refused)
    commit = _Commit(broker, version, request, offsets, refused)
    if len(offsets) > MANY_OFFSETS:
        return _append_in_slices(broker, context, request, commit)
    return _append(broker, version, request, commit)


async def _append_in_slices(
    broker: "Broker", context: RequestContext, request: TxnOffsetCommitRequest, commit: "_Commit"
) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
    """Encode the records in slices, and only then ask for the verdict."""
    budget = new_budget()
    steps = broker.group_coordinator.encode_commit(request.group_id, commit.offsets, budget)
    commit.encoded = await broker.sliced_work.run(steps, budget, context.connection, needs_place=False)
    outcome = _append(broker, context.api_version, request, commit)
    return await outcome if isinstance(outcome, Coroutine) else outcome


def _append(
    broker: "Broker", version: int, request: TxnOffsetCommitRequest, commit: "_Commit"
) -> _Outcome | Coroutine[Any, Any, _Outcome]:
    groups = broker.group_coordinator
    index = groups.partition_for(request.group_id)
    if index is None or groups.availability(request.group_id):
        return commit.append({})  # The group's coordinator has its own answer.
    verdict = broker.transaction_verifier.verify_offsets(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        TopicPartition(GROUP_METADATA_TOPIC_NAME, index),
        version,
    )
    return commit.append(verdict) if isinstance(verdict, dict) else commit.append_when_verified(verdict)


class _Commit:
    """The part of a request that may be committed, if its transaction is open."""

    __slots__ = ("_broker", "_refused", "_request", "_version", "encoded", "offsets")

    def __init__(
        self,
        broker: "Broker",
        version: int,
        request: TxnOffsetCommitRequest,
        offsets: list[OffsetToCommit],
        refused: PartitionErrors,
    ) -> None:
        self._broker = broker
        self._version = version
        self._request = request
        self.offsets = offsets
        self.encoded: EncodedCommit | None = None
        self._refused = refused

    async def append_when_verified(
        self, pending: Pending
    ) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
        errors = await pending.decided()
        return self.append(errors)

    def append(self, unverified: Errors) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
        """In the same step as the verdict."""
        request, reply = self._request, Reply[TxnOffsetCommitResponse]()
        for error in unverified.values():
            return self._answer(dict.fromkeys((offset.partition for offset in self.offsets), error))
        self._broker.group_coordinator.txn_commit_offsets(
            Committer(request.group_id, request.member_id, request.group_instance_id, request.generation_id),
            Producer(request.producer_id, request.producer_epoch),
            self.offsets,
            lambda errors: reply(self._answer(errors)),
            encoded=self.encoded,
        )
        return reply.answer()

    def _answer(self, errors: PartitionErrors) -> TxnOffsetCommitResponse:
        return _response(self._request, self._version, self._refused | errors)


def _judge_topic(
    broker: "Broker",
    context: RequestContext,
    topic: TxnOffsetCommitRequestTopic,
    offsets: list[OffsetToCommit],
    refused: PartitionErrors,
) -> None:
    """Sort a topic's partitions into those to commit and those that are refused."""
    allowed = broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic.name)
    image = broker.metadata.image.topic(topic.name)
    for asked in topic.partitions:
        partition = TopicPartition(topic.name, asked.partition_index)
        if not allowed:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image is None or asked.partition_index not in image.partitions:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            metadata = asked.committed_metadata or ""
            offsets.append(
                OffsetToCommit(
                    partition, asked.committed_offset, asked.committed_leader_epoch, metadata, image.topic_id
                )
            )


def _response(request: TxnOffsetCommitRequest, version: int, errors: PartitionErrors) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=_for_version(errors[TopicPartition(topic.name, partition.partition_index)], version),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
