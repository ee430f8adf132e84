"""What scripted brokers answer about coordinators and partitions."""

from collections.abc import Mapping, Sequence

from oncelog.clients.admin.hanging_transactions import OpenTransaction
from oncelog.clients.admin.producers import ActiveProducer
from oncelog.clients.admin.transactions import TransactionDescription
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from oncelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from oncelog.protocol.messages.describe_transactions import TransactionState as DescribedState
from oncelog.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog.protocol.messages.list_transactions import TransactionState as ListedState
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.scripted_broker import Script, ScriptedBroker

ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_750_000_000_000


def coordinated_by(broker: ScriptedBroker) -> Script:
    """FindCoordinator: this broker, for every key."""

    def respond(request: Message) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        return FindCoordinatorResponse(
            coordinators=[
                FoundCoordinator(key=key, node_id=broker.node_id, host=broker.address.host, port=broker.address.port)
                for key in request.coordinator_keys
            ]
        )

    return respond


def producer(
    producer_id: int = 7, *, epoch: int = 3, start: int | None = 10, coordinator_epoch: int | None = 2
) -> ActiveProducer:
    return ActiveProducer(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=0,
        last_timestamp=NOW_MS,
        coordinator_epoch=coordinator_epoch,
        transaction_start_offset=start,
    )


def opened(topic_partition: TopicPartition = ORDERS, **fields: int | None) -> OpenTransaction:
    return OpenTransaction(topic_partition=topic_partition, producer=producer(**fields))  # type: ignore[arg-type]


def transaction(
    *partitions: TopicPartition, state: str = "Ongoing", epoch: int = 3, start_ms: int | None = NOW_MS
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id="billing",
        state=state,
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=45_000,
        start_ms=start_ms,
        partitions=partitions,
    )


class Scene:
    """A partition and a coordinator, as one broker tells of them: ``open`` and ``says`` can be changed on the way."""

    def __init__(self, *, open_transactions: Sequence[ActiveProducer], says: TransactionDescription | None) -> None:
        self.open: dict[TopicPartition, Sequence[ActiveProducer]] = {ORDERS: open_transactions}
        self.says = says
        self.broker = ScriptedBroker({})
        self.broker.script |= {
            FindCoordinatorRequest: lambda request: coordinated_by(self.broker)(request),
            DescribeProducersRequest: self._producers,
            ListTransactionsRequest: self._list,
            DescribeTransactionsRequest: self._describe,
        }

    leaders: Mapping[str, list[int]] = {"orders": [1], "__consumer_offsets": [1, 1]}

    def _producers(self, request: Message) -> DescribeProducersResponse:
        assert isinstance(request, DescribeProducersRequest)
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(
                            partition_index=index,
                            active_producers=[
                                ProducerState(
                                    producer_id=each.producer_id,
                                    producer_epoch=each.producer_epoch,
                                    last_sequence=each.last_sequence,
                                    last_timestamp=each.last_timestamp,
                                    coordinator_epoch=-1 if each.coordinator_epoch is None else each.coordinator_epoch,
                                    current_txn_start_offset=(
                                        -1 if each.transaction_start_offset is None else each.transaction_start_offset
                                    ),
                                )
                                for each in self.open.get(TopicPartition(topic.name, index), ())
                            ],
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def _list(self, request: Message) -> ListTransactionsResponse:
        assert isinstance(request, ListTransactionsRequest)
        says = self.says
        if says is None or says.producer_id not in request.producer_id_filters:
            return ListTransactionsResponse()
        listed = ListedState(
            transactional_id=says.transactional_id, producer_id=says.producer_id, transaction_state=says.state
        )
        return ListTransactionsResponse(transaction_states=[listed])

    def _describe(self, request: Message) -> DescribeTransactionsResponse:
        assert isinstance(request, DescribeTransactionsRequest)
        return DescribeTransactionsResponse(
            transaction_states=[self._described(transactional_id) for transactional_id in request.transactional_ids]
        )

    def _described(self, transactional_id: str) -> DescribedState:
        says = self.says
        if says is None or says.transactional_id != transactional_id:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return DescribedState(transactional_id=transactional_id, error_code=error)
        return DescribedState(
            transactional_id=says.transactional_id,
            transaction_state=says.state,
            transaction_timeout_ms=says.timeout_ms,
            transaction_start_time_ms=-1 if says.start_ms is None else says.start_ms,
            producer_id=says.producer_id,
            producer_epoch=says.producer_epoch,
            topics=[TopicData(topic=tp.topic, partitions=[tp.partition]) for tp in says.partitions],
        )
