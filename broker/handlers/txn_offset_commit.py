"""TxnOffsetCommit: commit offsets as part of a producer's transaction.

The transaction's coordinator verifies that the group's partition of the offsets topic is in an ongoing transaction of
this producer, or, from version 5 on, adds it (``oncelog.broker.transactions.verification``). A commit after the end of
its transaction would wait for a marker that is never written, and would block every consumer that requires stable
offsets (KIP-890). The verification and the append are one step, or a guard detects a marker in between.

From version 3 on the consumer's group metadata comes along, so that a producer whose consumer fell out of the group is
fenced like any other commit of it (KIP-447). Clients of versions 0 and 1 do not know
COORDINATOR_LOAD_IN_PROGRESS, and those before 4 do not know TRANSACTION_ABORTABLE. Clients of version 5 send no
AddOffsetsToTxn beforehand.

A commit of version 4 or older that comes over another connection than its producer's last one must be repeated
(``oncelog.broker.transactions.offset_commit_challenge``). That is decided after the verification, in the step of the
append.
"""

import asyncio
from functools import partial
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.broker.transactions.offset_commit_challenge import challenge_error
from oncelog.broker.transactions.verification import Errors, Pending
from oncelog.coordinator.group.large_commit import LargeCommit
from oncelog.coordinator.group.offset_requests import MANY_OFFSETS, Committer, OffsetToCommit, PartitionErrors
from oncelog.coordinator.group.shard import Producer
from oncelog.coordinator.promise import Promise
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition

_FIRST_THAT_KNOWS_LOADING = 2
_FIRST_WITH_EPOCH_BUMP: Final = 5
_UNITS_PER_TOPIC: Final = 4
_UNITS_PER_RESPONSE: Final = 2


def refuse_txn_offset_commit(
    request: TxnOffsetCommitRequest, version: int, error: ErrorCode
) -> TxnOffsetCommitResponse:
    """Return the error for every partition."""
    errors = {
        TopicPartition(topic.name, partition.partition_index): error
        for topic in request.topics
        for partition in topic.partitions
    }
    return _response(request, version, errors)


@handles(ApiKey.TXN_OFFSET_COMMIT, versions="0-5", error_response=refuse_txn_offset_commit)
def handle_txn_offset_commit(broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest) -> Outcome:
    version = context.api_version
    denied = _denied(broker, context, request)
    if sum([len(topic.partitions) for topic in request.topics], len(request.topics)) > MANY_OFFSETS:
        return _append_in_slices(broker, context, request, denied)
    if denied:
        return refuse_txn_offset_commit(request, version, denied)
    refused: PartitionErrors = {}
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        judged = _Topic(broker, context, topic)
        for requested in topic.partitions:
            judged.sort(requested, offsets, refused)
    if not offsets:
        return _response(request, version, refused)
    commit = _Commit(broker, context, request, offsets, refused)
    verdict = _verify(broker, version, request)
    return commit.append(verdict) if isinstance(verdict, dict) else commit.append_when_verified(verdict)


def _denied(broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    authorize = broker.authorizer.authorize
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _offsets_partition(broker: Broker, request: TxnOffsetCommitRequest) -> TopicPartition | None:
    """Return the partition of the request's group; None if the group's coordinator refuses the request."""
    groups = broker.group_coordinator
    index = groups.partition_for(request.group_id)
    if index is None or groups.availability(request.group_id):
        return None
    return TopicPartition(GROUP_METADATA_TOPIC_NAME, index)


def _is_challenged(broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest) -> bool:
    """Return whether a commit that would take effect must be repeated by its client."""
    if context.api_version >= _FIRST_WITH_EPOCH_BUMP:
        return False
    partition = _offsets_partition(broker, request)
    challenges = broker.transaction_verifier.offset_commits
    if partition is None:
        return False
    return challenges.is_challenged(partition, _producer(request), request.transactional_id, context.connection)


def _producer(request: TxnOffsetCommitRequest) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(request.producer_id, request.producer_epoch)


def _verify(broker: Broker, version: int, request: TxnOffsetCommitRequest) -> Errors | Pending:
    partition = _offsets_partition(broker, request)
    if partition is None:
        return {}  # The group's coordinator returns its own error.
    return broker.transaction_verifier.verify_offsets(request.transactional_id, _producer(request), partition, version)


def _committer(request: TxnOffsetCommitRequest) -> Committer:
    producer = Producer(request.producer_id, request.producer_epoch)
    return Committer(request.group_id, request.member_id, request.group_instance_id, request.generation_id, producer)


async def _append_in_slices(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest, denied: ErrorCode
) -> TxnOffsetCommitResponse:
    """Look at the request and make its records in slices, verify, commit all in the same step."""
    budget, work, version = new_budget(), broker.sliced_work, context.api_version
    errors: PartitionErrors = {}
    steps = _make_large(broker, context, request, denied, errors, budget)
    made = await work.run(steps, budget, context.connection, needs_place=False)
    if made is not None:
        verdict, reply = _verify(broker, version, request), Promise[PartitionErrors]()
        unverified = verdict if isinstance(verdict, dict) else await verdict.decided()
        error = next(iter(unverified.values()), None)
        if error is None and _is_challenged(broker, context, request):
            error = challenge_error(version)
        if error is None:
            broker.group_coordinator.commit_at_once(_committer(request), made, reply.complete)
        else:
            made.refuse(error, reply.complete)
        result = reply.result()
        errors |= await result if isinstance(result, asyncio.Future) else result
    response = _response_in_slices(request, version, errors, budget)
    return await work.run(response, budget, context.connection, needs_place=False)


def _make_large(
    broker: Broker,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    denied: ErrorCode,
    refused: PartitionErrors,
    budget: WorkBudget,
) -> Steps[LargeCommit | None]:
    """Return what is to be committed, if anything may be; the errors of the other partitions go to ``refused``."""
    made = broker.group_coordinator.begin_commit(request.group_id)
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        judged = _Topic(broker, context, topic, denied)
        budget.left -= _UNITS_PER_TOPIC
        yield from in_slices(topic.partitions, partial(judged.sort, offsets=offsets, refused=refused), budget, 2)
    if isinstance(made, ErrorCode):
        refused |= dict.fromkeys([offset.partition for offset in offsets], made)
        return None
    if not offsets:
        return None
    yield from made.encode(offsets, budget)
    return made


def _response_in_slices(
    request: TxnOffsetCommitRequest, version: int, errors: PartitionErrors, budget: WorkBudget
) -> Steps[TxnOffsetCommitResponse]:
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        topic_response = TxnOffsetCommitResponseTopic(name=topic.name)
        shape = partial(_partition_response, topic.name, version, errors)
        topic_response.partitions = yield from in_slices(topic.partitions, shape, budget, _UNITS_PER_RESPONSE)
        response.topics.append(topic_response)
    return response


class _Commit:
    """The part of a request that may be committed, if its transaction is open."""

    __slots__ = ("_broker", "_context", "_refused", "_request", "offsets")

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: TxnOffsetCommitRequest,
        offsets: list[OffsetToCommit],
        refused: PartitionErrors,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self.offsets = offsets
        self._refused = refused

    async def append_when_verified(
        self, pending: Pending
    ) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
        errors = await pending.decided()
        return self.append(errors)

    def append(self, unverified: Errors) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
        """Append the offsets in the same step as the verification."""
        request, reply = self._request, Promise[TxnOffsetCommitResponse]()
        for error in unverified.values():
            return self._respond_all(error)
        if _is_challenged(self._broker, self._context, request):
            return self._respond_all(challenge_error(self._context.api_version))
        self._broker.group_coordinator.commit_offsets(
            _committer(request),
            self.offsets,
            lambda errors: reply.complete(self._respond(errors)),
        )
        return reply.result()

    def _respond_all(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        return self._respond(dict.fromkeys((offset.partition for offset in self.offsets), error))

    def _respond(self, errors: PartitionErrors) -> TxnOffsetCommitResponse:
        return _response(self._request, self._context.api_version, self._refused | errors)


class _Topic:
    """A topic of the request, as far as the client may commit offsets of it."""

    __slots__ = ("_error", "_image", "_name")

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        topic: TxnOffsetCommitRequestTopic,
        denied: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self._name = topic.name
        self._image = broker.metadata.image.topic(topic.name)
        self._error = denied
        if not denied and not broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic.name):
            self._error = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def sort(
        self, requested: TxnOffsetCommitRequestPartition, offsets: list[OffsetToCommit], refused: PartitionErrors
    ) -> None:
        """Add a partition to those to commit or to those that are refused."""
        partition, image = TopicPartition(self._name, requested.partition_index), self._image
        if self._error:
            refused[partition] = self._error
        elif image is None or requested.partition_index not in image.partitions:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            metadata = requested.committed_metadata or ""
            offsets.append(
                OffsetToCommit(
                    partition, requested.committed_offset, requested.committed_leader_epoch, metadata, image.topic_id
                )
            )


def _response(request: TxnOffsetCommitRequest, version: int, errors: PartitionErrors) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    _partition_response(topic.name, version, errors, partition) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition_response(
    topic: str, version: int, errors: PartitionErrors, partition: TxnOffsetCommitRequestPartition
) -> TxnOffsetCommitResponsePartition:
    index = partition.partition_index
    error = _for_version(errors[TopicPartition(topic, index)], version)
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
