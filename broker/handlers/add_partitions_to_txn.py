"""AddPartitionsToTxn (API key 24): add partitions to a transaction before it writes to them.

Versions 0 to 3 are for producers. They may not add partitions of internal topics; offsets get into a transaction
through AddOffsetsToTxn. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, which clients retry without end;
so the coordinator decides when to return INVALID_TOPIC_EXCEPTION instead, which makes them abort.
COORDINATOR_LOAD_IN_PROGRESS may also mean that the producer has come over another connection and has to repeat the
request (``oncelog.coordinator.transaction.connection_challenge``).

Versions 4 and 5 are for brokers (KIP-890), for many transactions at once. With ``verify_only`` the leader of
a partition verifies that a producer of the first protocol has added it; otherwise it adds it for a producer of the
second, which has only sent its batch. The request needs CLUSTER_ACTION; the leader has authorized the producers.
The response does not wait for a transactional id whose previous transaction is still completing: one response carries
the results of many ids, and one id whose markers cannot be written would delay all others. The leader retries that id.
While the request waits for replication, the next requests of the connection are served: a broker may send markers over
the same connection. A request with very many transactions is handled in slices.

All or nothing, for each transaction: if one partition cannot be added, it gets its error and the others
OPERATION_NOT_ATTEMPTED.

Versions: 2 is the first whose clients know PRODUCER_FENCED; older clients get INVALID_PRODUCER_EPOCH. 3 is
flexible. 5 means that its sender knows TRANSACTION_ABORTABLE; as in Kafka, 4 gets the same responses.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from oncelog.broker.dispatch.api_handler import Outcome, Shaped, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.promise import value_of
from oncelog.coordinator.transaction.state import EPOCH_BUMP_VERSION, ProducerIdAndEpoch
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition

_FIRST_WITH_PRODUCER_FENCED: Final = 2
_FIRST_FOR_BROKERS: Final = 4
_MANY_PARTITIONS: Final = 500
"""More are looked at in slices."""
_UNITS_PER_PARTITION: Final = 2
_UNITS_PER_TRANSACTION: Final = 30

_Errors = dict[TopicPartition, ErrorCode]


class _Adding(NamedTuple):
    """Partitions that are being added to a transaction."""

    partitions: list[TopicPartition]
    result: asyncio.Future[ErrorCode]

    async def errors(self) -> _Errors:
        """Wait until they are added, or cannot be."""
        return dict.fromkeys(self.partitions, await self.result)


def error_response(request: AddPartitionsToTxnRequest, version: int, error: ErrorCode) -> AddPartitionsToTxnResponse:
    """Return the error for every partition, or for the whole request where there is a field for that."""
    if version >= _FIRST_FOR_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error)
    return _response(request, dict.fromkeys(_partitions(request.v3_and_below_topics), _for_version(error, version)))


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", error_response=error_response)
def handle_add_partitions_to_txn(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Outcome:
    if context.api_version >= _FIRST_FOR_BROKERS:
        return _handle_brokers_request(broker, context, request)
    version, transactional_id = context.api_version, request.v3_and_below_transactional_id
    allowed = broker.authorizer.authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = _partitions(request.v3_and_below_topics)
    if len(partitions) + len(request.v3_and_below_topics) > _MANY_PARTITIONS:
        denied = ErrorCode.NONE if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _add_in_slices(broker, context, request, producer, partitions, denied)
    if not allowed:
        return error_response(request, version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = {partition: _refusal(broker, context, partition) for partition in partitions}
    if any(refused.values()):
        return _response(request, _errors_of_all(broker, version, request, producer, refused))
    response = broker.transaction_coordinator.add_partitions(
        transactional_id, producer, frozenset(partitions), client_version=0, connection=context.connection
    )
    return Shaped(response, lambda error: error_response(request, version, error))


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


# From producers


def _refusal(broker: Broker, context: RequestContext, partition: TopicPartition) -> ErrorCode:
    """Return why this partition cannot be part of a transaction."""
    topic = partition.topic
    if topic in INTERNAL_TOPICS or not broker.authorizer.authorize(context, Operation.WRITE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _unknown(broker, partition)


def _unknown(broker: Broker, partition: TopicPartition) -> ErrorCode:
    is_known = broker.metadata.image.partition(partition) is not None
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _add_in_slices(
    broker: Broker,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
    denied: ErrorCode,
) -> AddPartitionsToTxnResponse:
    """Look at the partitions in slices, add all in one step, and respond in slices."""
    budget, work, version = new_budget(), broker.sliced_work, context.api_version
    refused = dict.fromkeys(partitions, denied)
    if not denied:
        judged = _judge_in_slices(broker, partitions, partial(_refusal, broker, context), budget)
        refused = await work.run(judged, budget, context.connection, needs_place=False)
    if denied:
        errors = refused
    elif any(refused.values()):
        errors = _errors_of_all(broker, version, request, producer, refused)
    else:
        error = await value_of(
            broker.transaction_coordinator.add_partitions(
                request.v3_and_below_transactional_id,
                producer,
                frozenset(partitions),
                client_version=0,
                connection=context.connection,
            )
        )
        errors = dict.fromkeys(partitions, _for_version(error, version))
    steps = _results_in_slices(request.v3_and_below_topics, errors, budget)
    results = await work.run(steps, budget, context.connection, needs_place=False)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _judge_in_slices(
    broker: Broker,
    partitions: list[TopicPartition],
    judge: Callable[[TopicPartition], ErrorCode],
    budget: WorkBudget,
) -> Steps[_Errors]:
    """Return the verdict on each partition; none of those that may be added has been deleted meanwhile."""
    image = broker.metadata.image
    verdicts = yield from in_slices(partitions, judge, budget, _UNITS_PER_PARTITION)
    errors = dict(zip(partitions, verdicts, strict=True))
    if broker.metadata.image is not image:
        for partition in [each for each in partitions if broker.metadata.image.partition(each) is None]:
            errors[partition] = errors[partition] or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return errors


def _errors_of_all(
    broker: Broker, version: int, request: AddPartitionsToTxnRequest, producer: ProducerIdAndEpoch, refused: _Errors
) -> _Errors:
    """Return the errors of a request of which some partitions cannot be added, so none is."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if unknown in refused.values():
        unknown = broker.transaction_coordinator.refuse_unknown_topic(request.v3_and_below_transactional_id, producer)
        if unknown not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return dict.fromkeys(refused, _for_version(unknown, version))
    returned = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: unknown, ErrorCode.NONE: ErrorCode.OPERATION_NOT_ATTEMPTED}
    return {partition: returned.get(error, error) for partition, error in refused.items()}


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _not_attempted(errors: _Errors) -> _Errors:
    return {partition: error or ErrorCode.OPERATION_NOT_ATTEMPTED for partition, error in errors.items()}


def _response(request: AddPartitionsToTxnRequest, errors: _Errors) -> AddPartitionsToTxnResponse:
    results = _topic_results(request.v3_and_below_topics, errors)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _topic_results(topics: list[AddPartitionsToTxnTopic], errors: _Errors) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[_partition_result(topic.name, errors, index) for index in topic.partitions],
        )
        for topic in topics
    ]


def _results_in_slices(
    topics: list[AddPartitionsToTxnTopic], errors: _Errors, budget: WorkBudget
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results: list[AddPartitionsToTxnTopicResult] = []
    for topic in topics:
        result, shape = AddPartitionsToTxnTopicResult(name=topic.name), partial(_partition_result, topic.name, errors)
        result.results_by_partition = yield from in_slices(topic.partitions, shape, budget, _UNITS_PER_PARTITION)
        results.append(result)
    return results


def _partition_result(topic: str, errors: _Errors, index: int) -> AddPartitionsToTxnPartitionResult:
    error = errors[TopicPartition(topic, index)]
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)


# From brokers


def _handle_brokers_request(broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    budget = new_budget()
    steps = _add_or_verify_all(broker, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _add_or_verify_all(
    broker: Broker, request: AddPartitionsToTxnRequest, budget: WorkBudget
) -> Steps[AddPartitionsToTxnResponse | asyncio.Future[AddPartitionsToTxnResponse]]:
    """Decide on one transaction after the other; those that were added stay so if the connection is lost meanwhile."""
    results: list[_Errors | _Adding] = []
    for transaction in request.transactions:
        results.append((yield from _add_or_verify(broker, transaction, budget)))
        budget.left -= _UNITS_PER_TRANSACTION
        if budget.left <= 0:
            yield None
    errors = [result for result in results if isinstance(result, dict)]
    if len(errors) == len(results):
        return (yield from _response_to_broker(request, errors, budget))
    waiting = _when_all_are_added(broker, request, results, budget)
    return broker.supervisor.spawn(waiting, "add partitions to transactions")


def _add_or_verify(
    broker: Broker, transaction: AddPartitionsToTxnTransaction, budget: WorkBudget
) -> Steps[_Errors | _Adding]:
    coordinator, transactional_id = broker.transaction_coordinator, transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    partitions = _partitions(transaction.topics)
    unknown = yield from _judge_in_slices(broker, partitions, partial(_unknown, broker), budget)
    if any(unknown.values()):
        return _not_attempted(unknown)
    if transaction.verify_only:
        return coordinator.verify_partitions(transactional_id, producer, frozenset(partitions))
    result = coordinator.add_partitions_if_idle(
        transactional_id, producer, frozenset(partitions), client_version=EPOCH_BUMP_VERSION
    )
    return _Adding(partitions, result) if isinstance(result, asyncio.Future) else dict.fromkeys(partitions, result)


def _response_to_broker(
    request: AddPartitionsToTxnRequest, errors: list[_Errors], budget: WorkBudget
) -> Steps[AddPartitionsToTxnResponse]:
    response = AddPartitionsToTxnResponse()
    for transaction, of_transaction in zip(request.transactions, errors, strict=True):
        result = AddPartitionsToTxnResult(transactional_id=transaction.transactional_id)
        result.topic_results = yield from _results_in_slices(transaction.topics, of_transaction, budget)
        response.results_by_transaction.append(result)
    return response


async def _when_all_are_added(
    broker: Broker,
    request: AddPartitionsToTxnRequest,
    results: list[_Errors | _Adding],
    budget: WorkBudget,
) -> AddPartitionsToTxnResponse:
    errors = [await result.errors() if isinstance(result, _Adding) else result for result in results]
    response = _response_to_broker(request, errors, budget)
    return await broker.sliced_work.run(response, budget, None, needs_place=False)
