"""AddPartitionsToTxn (API key 24): where a transaction is about to write.

Versions 0 to 3 are for producers, which say it beforehand. Internal topics are not for them; offsets get into
a transaction through AddOffsetsToTxn. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, which clients
retry without end; so the coordinator says when it is time for INVALID_TOPIC_EXCEPTION, which makes them abort.

Versions 4 and 5 are for brokers (KIP-890), for many transactions at once. With ``verify_only`` the leader of
a partition asks whether a producer of the first protocol has added it; otherwise it adds it for a producer of the
second, which has only sent its batch. The request needs CLUSTER_ACTION; what the producers may do the leader knows.
A busy id is not waited for: one response carries the results of many ids, and one id whose markers cannot be written
would hold up all others. The leader asks again for that id. While the request waits for replication it holds up nothing
behind it: a broker may send markers over the same connection. Very many transactions are decided on in slices.

All or nothing, for each transaction: if one partition cannot be added, it gets its error and the others
OPERATION_NOT_ATTEMPTED.

Versions: 2 is the first whose clients know PRODUCER_FENCED; before, they are told INVALID_PRODUCER_EPOCH. 3 is
flexible. 5 says that its sender knows TRANSACTION_ABORTABLE; as in Kafka, 4 is answered the same.
"""

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from broker.sliced_work import Steps, new_budget
from coordinator.controller.cluster_image import INTERNAL_TOPICS
from coordinator.runtime import Answer, map_answer
from coordinator.transaction.state import EPOCH_BUMP_VERSION, ProducerIdAndEpoch
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.records.record_walk import WorkBudget
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker

_FIRST_WITH_PRODUCER_FENCED: Final = 2
_FIRST_FOR_BROKERS: Final = 4
_UNITS_PER_TRANSACTION: Final = 30

_Errors = dict[TopicPartition, ErrorCode]


def error_response(request: AddPartitionsToTxnRequest, version: int, error: ErrorCode) -> AddPartitionsToTxnResponse:
    """The error for every partition, or for the whole request where there is a field for that."""
    if version >= _FIRST_FOR_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error)
    if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return _response(request, dict.fromkeys(_partitions(request.v3_and_below_topics), error))


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", error_response=error_response)
def handle_add_partitions_to_txn(
    broker: "Broker", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Outcome:
    if context.api_version >= _FIRST_FOR_BROKERS:
        return _handle_brokers_request(broker, context, request)
    version, transactional_id = context.api_version, request.v3_and_below_transactional_id
    if not broker.authorizer.authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return error_response(request, version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = _partitions(request.v3_and_below_topics)
    refused = {partition: _refusal(broker, context, partition) for partition in partitions}
    if any(refused.values()):
        return _refuse_all(broker, version, request, producer, refused)
    answer = broker.transaction_coordinator.add_partitions(
        transactional_id, producer, frozenset(partitions), client_version=0
    )
    return map_answer(answer, lambda error: error_response(request, version, error))


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


# From producers


def _refusal(broker: "Broker", context: RequestContext, partition: TopicPartition) -> ErrorCode:
    """Why this partition cannot be part of a transaction."""
    topic = partition.topic
    if topic in INTERNAL_TOPICS or not broker.authorizer.authorize(context, Operation.WRITE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _unknown(broker, partition)


def _unknown(broker: "Broker", partition: TopicPartition) -> ErrorCode:
    is_known = broker.metadata.image.partition(partition) is not None
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refuse_all(
    broker: "Broker",
    version: int,
    request: AddPartitionsToTxnRequest,
    producer: ProducerIdAndEpoch,
    refused: _Errors,
) -> AddPartitionsToTxnResponse:
    """Some cannot be added, so none is."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if unknown in refused.values():
        unknown = broker.transaction_coordinator.refuse_unknown_topic(request.v3_and_below_transactional_id, producer)
        if unknown not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return error_response(request, version, unknown)
    errors = {
        partition: unknown if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error
        for partition, error in refused.items()
    }
    return _response(request, _not_attempted(errors))


def _not_attempted(errors: _Errors) -> _Errors:
    return {partition: error or ErrorCode.OPERATION_NOT_ATTEMPTED for partition, error in errors.items()}


def _response(request: AddPartitionsToTxnRequest, errors: _Errors) -> AddPartitionsToTxnResponse:
    results = _topic_results(request.v3_and_below_topics, errors)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _topic_results(topics: list[AddPartitionsToTxnTopic], errors: _Errors) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


# From brokers


def _handle_brokers_request(broker: "Broker", context: RequestContext, request: AddPartitionsToTxnRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    budget = new_budget()
    steps = _add_or_verify_all(broker, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _add_or_verify_all(
    broker: "Broker", request: AddPartitionsToTxnRequest, budget: WorkBudget
) -> Steps[AddPartitionsToTxnResponse | asyncio.Future[AddPartitionsToTxnResponse]]:
    """Decide on one transaction after the other; those that were added stay so if the connection is lost meanwhile."""
    answers: list[Answer[AddPartitionsToTxnResult]] = []
    try:
        for transaction in request.transactions:
            answers.append(_add_or_verify(broker, transaction))
            budget.left -= _UNITS_PER_TRANSACTION
            if budget.left <= 0:
                yield None
    except GeneratorExit:
        for answer in answers:
            if isinstance(answer, CoroutineType):
                answer.close()
        raise
    results = [answer for answer in answers if isinstance(answer, AddPartitionsToTxnResult)]
    if len(results) == len(answers):
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return broker.supervisor.spawn(_when_all_are_answered(answers), "add partitions to transactions")


def _add_or_verify(broker: "Broker", transaction: AddPartitionsToTxnTransaction) -> Answer[AddPartitionsToTxnResult]:
    coordinator, transactional_id = broker.transaction_coordinator, transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    partitions = _partitions(transaction.topics)
    unknown = {partition: _unknown(broker, partition) for partition in partitions}
    if any(unknown.values()):
        return _result(transaction, _not_attempted(unknown))
    if transaction.verify_only:
        return _result(transaction, coordinator.verify_partitions(transactional_id, producer, frozenset(partitions)))
    answer = coordinator.add_partitions(
        transactional_id,
        producer,
        frozenset(partitions),
        client_version=EPOCH_BUMP_VERSION,
        waits_while_busy=False,
    )
    return map_answer(answer, lambda error: _result(transaction, dict.fromkeys(partitions, error)))


def _result(transaction: AddPartitionsToTxnTransaction, errors: _Errors) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=_topic_results(transaction.topics, errors)
    )


async def _when_all_are_answered(answers: list[Answer[AddPartitionsToTxnResult]]) -> AddPartitionsToTxnResponse:
    """They wait side by side, because each may wait for a transaction of its own to be complete."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_settle(answer)) for answer in answers]
    return AddPartitionsToTxnResponse(results_by_transaction=[task.result() for task in tasks])


async def _settle(answer: Answer[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResult:
    if isinstance(answer, asyncio.Future | CoroutineType):
        return await answer
    assert isinstance(answer, AddPartitionsToTxnResult)
    return answer
