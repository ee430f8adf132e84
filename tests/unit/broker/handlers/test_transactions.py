"""The requests of transactional producers and of their operators: shapes, versions, and who may."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.dispatch.sliced_work import SlicedWork
from oncelog.broker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from oncelog.broker.handlers.add_partitions_to_txn import error_response as add_partitions_error
from oncelog.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from oncelog.broker.handlers.describe_transactions import handle_describe_transactions
from oncelog.broker.handlers.end_txn import handle_end_txn
from oncelog.broker.handlers.init_producer_id import handle_init_producer_id
from oncelog.broker.handlers.list_transactions import handle_list_transactions
from oncelog.broker.network.response_memory import ResponseMemory
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, TopicData
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.deciding import Deciding
from tests.unit.broker.outcomes import without_shape
from tests.unit.coordinator.transaction.world import HERE, World

CLIENT = ConnectionInfo(client_host="127.0.0.1", client_port=50123, listener_name="PLAINTEXT")
NEWEST = {
    handle_init_producer_id: 5,
    handle_add_partitions_to_txn: 5,
    handle_add_offsets_to_txn: 4,
    handle_end_txn: 5,
    handle_describe_transactions: 0,
    handle_list_transactions: 2,
}


class Rules(Deciding):
    """An authorizer that denies what the test says."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, ResourceType, str]] = set()

    def authorize(self, context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
        return (operation, kind, name) not in self.denied


class Side:
    """The transactional side of a broker: its handlers over a coordinator in its small world."""

    def __init__(self) -> None:
        self.world = World().start()
        self.rules = Rules()
        self.metadata = MetadataCache()
        self.broker: Any = SimpleNamespace(
            transaction_coordinator=self.world.coordinator,
            metadata=self.metadata,
            authorizer=self.rules,
            config=BrokerConfig(),
            supervisor=Supervisor(),
            sliced_work=SlicedWork(),
            response_memory=ResponseMemory(1 << 20),
        )
        self.create("invoices", 2)

    def create(self, topic: str, partitions: int) -> None:
        self.world.cluster.add_topic(topic, partitions)
        states = [
            UpdateMetadataPartitionState(
                partition_index=index, leader=HERE, leader_epoch=0, replicas=[HERE], isr=[HERE]
            )
            for index in range(partitions)
        ]
        topics = [
            UpdateMetadataTopicState(topic_name=topic, topic_id=topic.encode().rjust(16), partition_states=states)
        ]
        self.metadata.apply_update_metadata(UpdateMetadataRequest(controller_epoch=1, topic_states=topics))

    def ask(self, handler: ApiHandler[Any], request: Message, version: int | None = None) -> Any:
        """The response, however long it takes."""
        context = RequestContext(NEWEST[handler] if version is None else version, 1, "client", CLIENT)
        outcome = self.world.do(lambda: without_shape(handler(self.broker, context, request)))
        if isinstance(outcome, Message):
            return outcome
        assert outcome is not None
        return self.world.loop.run_until_complete(asyncio.wait_for(outcome, 60))

    def init(self, version: int = 5, **fields: Any) -> Any:
        request = InitProducerIdRequest(**{"transactional_id": "id", "transaction_timeout_ms": 60_000, **fields})
        return self.ask(handle_init_producer_id, request, version)

    def producer(self) -> ProducerIdAndEpoch:
        response = self.init()
        assert response.error_code == ErrorCode.NONE
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def add(self, producer: ProducerIdAndEpoch, *topics: tuple[str, list[int]], version: int = 3) -> dict[str, int]:
        """{"topic-partition": error}"""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics],
        )
        response = self.ask(handle_add_partitions_to_txn, request, version)
        return {
            f"{topic.name}-{partition.partition_index}": partition.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }

    def ask_as_broker(self, *transactions: AddPartitionsToTxnTransaction, version: int = 5) -> Any:
        return self.ask(
            handle_add_partitions_to_txn, AddPartitionsToTxnRequest(transactions=list(transactions)), version
        )

    def add_as_broker(self, *transactions: AddPartitionsToTxnTransaction, version: int = 5) -> dict[str, int]:
        """{"transactional id: topic-partition": error}"""
        response = self.ask_as_broker(*transactions, version=version)
        assert response.error_code == ErrorCode.NONE
        return {
            f"{result.transactional_id}: {topic.name}-{partition.partition_index}": partition.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }

    def add_offsets(self, producer: ProducerIdAndEpoch, version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="id", producer_id=producer.id, producer_epoch=producer.epoch, group_id="group"
        )
        error: int = self.ask(handle_add_offsets_to_txn, request, version).error_code
        return error

    def end(self, producer: ProducerIdAndEpoch, version: int = 4) -> int:
        error: int = self.end_fully(producer, version).error_code
        return error

    def end_fully(self, producer: ProducerIdAndEpoch, version: int = 5) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id="id", producer_id=producer.id, producer_epoch=producer.epoch, committed=True
        )
        response: EndTxnResponse = self.ask(handle_end_txn, request, version)
        return response


def of_broker(
    producer: ProducerIdAndEpoch,
    topic: str,
    *partitions: int,
    transactional_id: str = "id",
    verify_only: bool = False,
) -> AddPartitionsToTxnTransaction:
    """One transaction of a request between brokers."""
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


@pytest.fixture
def side() -> Iterator[Side]:
    made = Side()
    yield made
    made.world.stop()


def test_requests_of_a_transaction(side: Side) -> None:
    producer = side.producer()
    assert side.add(producer, ("invoices", [0, 1])) == {"invoices-0": 0, "invoices-1": 0}
    assert side.add_offsets(producer) == ErrorCode.NONE
    offsets = TopicPartition("__consumer_offsets", partition_for("group", 50))
    assert side.world.described().partitions >= {TopicPartition("invoices", 1), offsets}
    side.create("__consumer_offsets", 50)
    assert side.end(producer) == ErrorCode.NONE
    assert [marker.commit for marker in side.world.markers(offsets)] == [True]


@pytest.mark.parametrize("kind", ["init", "add", "add offsets", "end"])
def test_fenced_producer_gets_an_error_that_its_version_knows(side: Side, kind: str) -> None:
    zombie = side.producer()
    side.producer()
    fenced, old = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    if kind == "init":
        fields = {"producer_id": zombie.id, "producer_epoch": zombie.epoch + 7}
        responses = [side.init(version, **fields).error_code for version in (3, 4, 5)]
        assert responses == [old, fenced, fenced]
    elif kind == "add":
        responses = [side.add(zombie, ("invoices", [0]), version=version)["invoices-0"] for version in range(4)]
        assert responses == [old, old, fenced, fenced]
    elif kind == "add offsets":
        assert [side.add_offsets(zombie, version) for version in range(5)] == [old, old, fenced, fenced, fenced]
    else:
        assert [side.end(zombie, version) for version in range(6)] == [old, old, *[fenced] * 4]


# InitProducerId


def test_producer_without_a_transactional_id_is_served_by_anyone(side: Side) -> None:
    one, other = (side.init(transactional_id=None, transaction_timeout_ms=0) for _ in range(2))
    assert (one.error_code, one.producer_epoch) == (ErrorCode.NONE, 0)
    assert one.producer_id != other.producer_id


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(1, -1), (-1, 0)])
def test_producer_id_without_epoch_is_invalid(side: Side, producer_id: int, producer_epoch: int) -> None:
    response = side.init(producer_id=producer_id, producer_epoch=producer_epoch)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


# AddPartitionsToTxn


def test_partitions_are_added_all_or_none(side: Side) -> None:
    producer = side.producer()
    side.rules.denied.add((Operation.WRITE, ResourceType.TOPIC, "secret"))
    side.create("secret", 1)
    errors = side.add(producer, ("invoices", [0, 9]), ("secret", [0]), ("__consumer_offsets", [0]))
    assert errors == {
        "invoices-0": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "invoices-9": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "secret-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "__consumer_offsets-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert side.world.described().partitions == frozenset()


def test_topic_that_stays_away_ends_the_retries(side: Side) -> None:
    """B10: after a topic is deleted, AddPartitions ends in a definite error, never infinite retries."""
    producer = side.producer()
    assert side.add(producer, ("gone", [0])) == {"gone-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    side.world.sleep(61)
    assert side.add(producer, ("gone", [0]), ("invoices", [0])) == {
        "gone-0": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "invoices-0": ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
    assert side.add(producer, ("invoices", [0])) == {"invoices-0": ErrorCode.NONE}
    assert side.add(producer, ("gone", [0])) == {"gone-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    zombie = producer
    side.producer()
    assert side.add(zombie, ("gone", [0]), version=0) == {"gone-0": ErrorCode.INVALID_PRODUCER_EPOCH}


# The second transaction protocol


def test_end_of_version_5_gives_the_producer_its_next_epoch(side: Side) -> None:
    producer = side.producer()
    assert side.add_as_broker(of_broker(producer, "invoices", 0)) == {"id: invoices-0": ErrorCode.NONE}
    for _ in range(2):  # The second is a retry.
        response = side.end_fully(producer)
        assert (response.error_code, response.producer_id) == (ErrorCode.NONE, producer.id)
        assert response.producer_epoch == producer.epoch + 1
    following = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    assert side.add_as_broker(of_broker(following, "invoices", 0)) == {"id: invoices-0": ErrorCode.NONE}
    refused = side.end_fully(producer)
    assert refused.error_code == ErrorCode.PRODUCER_FENCED
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


def test_end_of_version_4_keeps_the_epoch_at_any_level(side: Side) -> None:
    producer = side.producer()
    for _ in range(2):
        side.add(producer, ("invoices", [0]))
        assert side.end(producer, 4) == ErrorCode.NONE
        assert side.world.described().producer == producer


def test_log_names_the_clients_that_added_partitions_and_ended_the_transaction(side: Side) -> None:
    producer = side.producer()
    side.add(producer, ("invoices", [0]))
    assert side.world.described().client_transaction_version == 0
    side.add_as_broker(of_broker(producer, "invoices", 1), version=4)
    assert side.world.described().client_transaction_version == 2
    assert side.end(producer, 4) == ErrorCode.NONE
    assert side.world.described().client_transaction_version == 0


def test_broker_verifies_many_transactions_in_one_request(side: Side) -> None:
    one, other = side.world.producer("one"), side.world.producer("other")
    zombie = ProducerIdAndEpoch(one.id, one.epoch - 1)
    side.world.add(one, TopicPartition("invoices", 0), transactional_id="one", client_version=2)
    assert side.add_as_broker(
        of_broker(one, "invoices", 0, 1, transactional_id="one", verify_only=True),
        of_broker(zombie, "invoices", 1, transactional_id="one", verify_only=True),
        of_broker(other, "invoices", 0, 1, transactional_id="other"),
        of_broker(other, "invoices", 0, transactional_id="nobody"),
        of_broker(other, "invoices", 0, transactional_id=""),
    ) == {
        "one: invoices-0": ErrorCode.NONE,
        "one: invoices-1": ErrorCode.PRODUCER_FENCED,  # The second response for the same partition.
        "other: invoices-0": ErrorCode.NONE,
        "other: invoices-1": ErrorCode.NONE,
        "nobody: invoices-0": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ": invoices-0": ErrorCode.INVALID_REQUEST,
    }
    assert side.world.described("one").partitions == {TopicPartition("invoices", 0)}
    assert side.world.described("other").partitions == {TopicPartition("invoices", 0), TopicPartition("invoices", 1)}


@pytest.mark.parametrize("version", [4, 5])
def test_partition_that_was_not_added_is_not_verified(side: Side, version: int) -> None:
    """As in Kafka in both versions, although only the second one is said to know the error."""
    producer = side.producer()
    response = side.add_as_broker(of_broker(producer, "invoices", 0, verify_only=True), version=version)
    assert response == {"id: invoices-0": ErrorCode.TRANSACTION_ABORTABLE}


def test_brokers_may_add_partitions_of_internal_topics_but_none_that_does_not_exist(side: Side) -> None:
    producer = side.producer()
    side.create("__consumer_offsets", 50)
    side.rules.denied.add((Operation.WRITE, ResourceType.TOPIC, "__consumer_offsets"))
    assert side.add_as_broker(of_broker(producer, "__consumer_offsets", 7)) == {"id: __consumer_offsets-7": 0}
    for verify_only in (True, False):
        assert side.add_as_broker(of_broker(producer, "invoices", 0, 9, verify_only=verify_only)) == {
            "id: invoices-0": ErrorCode.OPERATION_NOT_ATTEMPTED,
            "id: invoices-9": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    assert side.world.described().partitions == {TopicPartition("__consumer_offsets", 7)}


def test_busy_transaction_of_a_broker_request_completes_at_once_beside_others(side: Side) -> None:
    """B05: the leader asks again for the one that is busy; nothing else waits for it."""
    side.world.cluster.partitions[TopicPartition("invoices", 0)].leader = 2
    old = side.world.producer("busy")
    side.world.add(old, TopicPartition("invoices", 0), transactional_id="busy", client_version=2)
    bumped = side.world.end_and_bump(old, transactional_id="busy").wait().producer
    busy = of_broker(bumped, "invoices", 1, transactional_id="busy")
    other = of_broker(side.world.producer("other"), "invoices", 1, transactional_id="other")
    before = side.world.loop.time()
    assert side.add_as_broker(busy, other) == {
        "busy: invoices-1": ErrorCode.CONCURRENT_TRANSACTIONS,
        "other: invoices-1": ErrorCode.NONE,
    }
    assert side.world.loop.time() == before
    side.world.do(side.world.cluster.deliver)
    assert set(side.add_as_broker(busy).values()) == {ErrorCode.NONE}
    assert side.world.described("busy").partitions == {TopicPartition("invoices", 1)}


def test_broker_request_of_an_unauthorized_client_is_refused(side: Side) -> None:
    producer = side.producer()
    side.rules.denied.add((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"))
    response = side.ask_as_broker(of_broker(producer, "invoices", 0))
    assert (response.error_code, response.results_by_transaction) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    assert side.world.described().partitions == frozenset()
    assert side.add(producer, ("invoices", [0])) == {"invoices-0": ErrorCode.NONE}


def test_failure_of_a_request_between_brokers_has_a_field_of_its_own() -> None:
    request = AddPartitionsToTxnRequest(transactions=[of_broker(ProducerIdAndEpoch(1, 0), "invoices", 0)])
    response = add_partitions_error(request, 4, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_log_says_who_took_over(side: Side) -> None:
    side.add(side.producer(), ("invoices", [0]))
    side.init()
    causes = [metadata.cause for _, metadata in side.world.log.records() if metadata is not None]
    who = "InitProducerId from client 'client' at 127.0.0.1:50123"
    assert causes == [who, None, who, who, who]
    assert side.world.log.states("id")[1:4] == ["Ongoing@0", "PrepareAbort@1", "CompleteAbort@1"]


# Who may


def test_client_without_write_on_a_transactional_id_is_refused_everywhere(side: Side) -> None:
    producer = side.producer()
    side.rules.denied.add((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "id"))
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert side.init().error_code == refused
    assert side.add(producer, ("invoices", [0, 1])) == {"invoices-0": refused, "invoices-1": refused}
    assert side.add_offsets(producer) == refused
    assert side.end(producer) == refused


def test_client_without_read_on_a_group_cannot_commit_its_offsets(side: Side) -> None:
    producer = side.producer()
    side.rules.denied.add((Operation.READ, ResourceType.GROUP, "group"))
    assert side.add_offsets(producer) == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_client_without_idempotent_write_gets_no_producer_id(side: Side) -> None:
    side.rules.denied.add((Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster"))
    assert side.init(transactional_id=None).error_code == ErrorCode.NONE  # It may write to some topic.
    side.rules.denied.add((Operation.WRITE, ResourceType.TOPIC, "*"))
    assert side.init(transactional_id=None).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# Operators


def test_transaction_is_described(side: Side) -> None:
    producer = side.producer()
    side.create("secret", 1)
    side.add(producer, ("invoices", [1, 0]), ("secret", [0]))
    side.rules.denied |= {
        (Operation.DESCRIBE, ResourceType.TOPIC, "secret"),
        (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "hidden"),
    }
    request = DescribeTransactionsRequest(transactional_ids=["id", "unknown", "hidden"])
    found, unknown, hidden = side.ask(handle_describe_transactions, request).transaction_states
    assert (found.error_code, found.transactional_id, found.transaction_state) == (0, "id", "Ongoing")
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (*producer, 60_000)
    assert found.transaction_start_time_ms == side.world.described().start_ms
    assert found.topics == [TopicData(topic="invoices", partitions=[0, 1])]
    assert (unknown.error_code, unknown.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "unknown")
    assert hidden.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def list_ids(side: Side, **criteria: Any) -> list[str]:
    response = side.ask(handle_list_transactions, ListTransactionsRequest(**criteria))
    assert response.error_code == ErrorCode.NONE
    return sorted(state.transactional_id for state in response.transaction_states)


def test_transactions_are_listed_by_the_filters_of_the_request(side: Side) -> None:
    for name in ("a-1", "a-2", "b-1", "hidden"):
        side.world.producer(name)
    side.add(side.producer(), ("invoices", [0]))
    side.rules.denied.add((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "hidden"))
    assert list_ids(side) == ["a-1", "a-2", "b-1", "id"]
    assert list_ids(side, state_filters=["Ongoing"]) == ["id"]
    assert list_ids(side, transactional_id_pattern="a-.") == ["a-1", "a-2"]
    assert list_ids(side, transactional_id_pattern="") == ["a-1", "a-2", "b-1", "id"]
    assert list_ids(side, state_filters=["Ongoing"], duration_filter=1) == []
    side.world.sleep(1)
    assert list_ids(side, state_filters=["Ongoing"], duration_filter=1) == ["id"]
    assert list_ids(side, producer_id_filters=[side.world.described("b-1").producer_id]) == ["b-1"]


def test_states_that_do_not_exist_are_reported(side: Side) -> None:
    side.producer()
    request = ListTransactionsRequest(state_filters=["Asleep"])
    response = side.ask(handle_list_transactions, request)
    assert (response.unknown_state_filters, response.transaction_states) == (["Asleep"], [])


@pytest.mark.parametrize("pattern", [".*(a|b).*(a|b){800}x", "[" * 1_000])
def test_other_requests_are_served_while_a_costly_pattern_is_compiled_and_matched(side: Side, pattern: str) -> None:
    names = [f"{index:03}" + "ab" * 500 for index in range(20)]
    for name in names:
        side.world.producer(name)
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    outcome = handle_list_transactions(side.broker, RequestContext(2, 1, "client", CLIENT), request)
    assert asyncio.iscoroutine(outcome), "it is not done in the turn of the loop in which it began"
    outcome.close()


def test_pattern_that_is_none_is_refused(side: Side) -> None:
    response = side.ask(handle_list_transactions, ListTransactionsRequest(transactional_id_pattern="("))
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
