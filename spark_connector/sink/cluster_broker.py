"""``SinkBroker`` for a real cluster: each step as requests, over the connections of this process.

``oncelog.clients.cluster`` retries requests to the wrong broker, or to a coordinator that is loading. Errors that are
still retriable after that, a lost connection for example, are returned as an error code of ``TRANSIENT``, and the
protocol retries the step: every step can be repeated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from oncelog.clients.admin.configs import Resource, ResourceType, describe_config
from oncelog.clients.admin.transactions import ONGOING, describe_transactions, list_transactions
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, ClientError, Refusal, VersionNotSupported, error_code
from oncelog.clients.fan_out import call_leaders
from oncelog.clients.retry import Backoff, Retry
from oncelog.clients.routes import Coordinator
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.retry import retry_operation
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.sink_broker import Ended, OpenTransaction, RowWriter
from oncelog.spark_connector.sink.commit.sink_errors import BatchNotDecided, SinkUnavailable, UnsupportedBroker
from oncelog.spark_connector.sink.commit.sink_transactions import (
    NO_SUCH_ID,
    Description,
    Driver,
    TaskTransaction,
    driver_id,
)
from oncelog.spark_connector.sink.commit.state_record import StateRecord
from oncelog.spark_connector.sink.state_log import StateLog, StateMemory

T = TypeVar("T")
_log = logging.getLogger(__name__)

_LONGEST_TIMEOUT: Final = "transaction.max.timeout.ms"
_NEEDED: Final = (ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS)
_ACKS_ALL: Final = -1
_FIRST_INIT_WITH_EXPECTED: Final = 3
_LAST_INIT_WITHOUT_TWO_PHASE_COMMIT: Final = 5
_LAST_END_OF_PROTOCOL_1: Final = 4
_FIRST_END_OF_PROTOCOL_2: Final = 5
_LAST_ADD_FOR_CLIENTS: Final = 3
_LAST_PRODUCE_OF_PROTOCOL_1: Final = 11
_LAST_PRODUCE_WITH_NAMES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The settings of the steps, besides the cluster."""

    state_topic: str
    transaction_timeout_ms: int
    """Also for the driver's transactions, so that a broker that allows less refuses it before any task runs."""
    patience_seconds: float
    """The time of a step's retries before the batch is decided. After that, until its transactions have timed out."""


class RetryPatience:
    """``Patience`` of the clients' backoff."""

    def __init__(self, retry: Retry, seconds: float) -> None:
        self._retry = retry
        self._seconds = seconds

    async def wait(self, reason: ErrorCode) -> None:
        if not await self._retry.pause():
            raise SinkUnavailable(
                f"the brokers did not succeed within {self._seconds:g} s: {reason.name}. "
                "`oncelog doctor` and `oncelog health` report what is wrong with them; kafka.max.block.ms (and, for a "
                "batch that is decided, transactionTimeoutMs) set the time"
            )


class ClusterBroker:
    """A ``SinkBroker``; ``make_writer`` begins the transaction of a task."""

    def __init__(
        self,
        cluster: Cluster,
        settings: SinkSettings,
        make_writer: Callable[[str], Awaitable[RowWriter]],
        memory: StateMemory,
        wall_clock: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._make_writer = make_writer
        self._log = StateLog(cluster, settings.state_topic, settings.patience_seconds, memory)
        self._wall_clock = wall_clock

    async def require_support(self) -> None:
        """Raise ``UnsupportedBroker`` if the cluster cannot list and describe transactions (KIP-664)."""
        connection = await self._with_retries(self._cluster.connection_to_any)
        lacks = [ApiKey(key).name for key in _NEEDED if connection.versions.range_of(key) is None]
        if lacks:
            raise UnsupportedBroker(
                f"the exactly-once sink needs brokers of Apache Kafka 3.0 or newer: the one at {connection.address} "
                f"lacks {' and '.join(lacks)}. With delivery.guarantee=at-least-once the sink does without"
            )

    async def require_transaction_timeout(self) -> None:
        """Raise ``BatchNotDecided`` if brokers do not allow the time-out of transactions, as far as they describe it.

        A driver that begins a transaction of its own gets that error itself; here there is none before the tasks.
        """
        known = (await self._with_retries(lambda: self._cluster.refresh(()))).brokers
        broker = Resource(type=ResourceType.BROKER, name=str(min(each.node_id for each in known)))
        try:
            described = await self._with_retries(lambda: describe_config(self._cluster, broker, [_LONGEST_TIMEOUT]))
        except BrokerRefused as error:
            _log.debug("%s is not known: %s", _LONGEST_TIMEOUT, error)
            return
        longest = min((int(each.value) for each in described if each.value is not None), default=None)
        wanted = self._settings.transaction_timeout_ms
        if longest is not None and longest < wanted:
            raise BatchNotDecided(
                f"transactionTimeoutMs: {wanted} is longer than the brokers allow; it may be up to {longest} (their "
                f"{_LONGEST_TIMEOUT})"
            )

    async def transaction_version(self) -> int:
        await self._with_retries(self._cluster.connection_to_any)
        return max(1, min(self._cluster.features.transaction_version, 2))

    async def init_producer_id(self, transactional_id: str, expected: Driver | None = None) -> Driver | ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self._settings.transaction_timeout_ms
        )
        if expected is not None:
            request.producer_id, request.producer_epoch = expected.producer_id, expected.epoch
        response = await _response_or_error(
            self._cluster.call(
                Coordinator.of_transactional_id(transactional_id),
                request,
                InitProducerIdResponse,
                errors=lambda response: [response.error_code],
                at_least=0 if expected is None else _FIRST_INIT_WITH_EXPECTED,
                at_most=_LAST_INIT_WITHOUT_TWO_PHASE_COMMIT,
            )
        )
        if isinstance(response, ErrorCode):
            return response
        error = error_code(response.error_code)
        return Driver(response.producer_id, response.producer_epoch) if error is ErrorCode.NONE else error

    async def end(self, transactions: Sequence[TaskTransaction], *, commit: bool) -> list[Ended]:
        if len(transactions) > 1:  # One FindCoordinator request for all of them instead of one each.
            await _response_or_error(
                self._cluster.coordinators([Coordinator.of_transactional_id(each[0]) for each in transactions])
            )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._end(each, commit)) for each in transactions]
        return [task.result() for task in tasks]

    async def _end(self, transaction: TaskTransaction, commit: bool) -> Ended:
        request = EndTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            committed=commit,
        )
        response = await _response_or_error(
            self._cluster.call(
                Coordinator.of_transactional_id(transaction.transactional_id),
                request,
                EndTxnResponse,
                errors=lambda response: [response.error_code],
                at_least=0 if transaction.version < 2 else _FIRST_END_OF_PROTOCOL_2,
                at_most=_LAST_END_OF_PROTOCOL_1 if transaction.version < 2 else None,
            )
        )
        if isinstance(response, ErrorCode):
            return Ended(response)
        return Ended(error_code(response.error_code), response.producer_id, response.producer_epoch)

    async def describe(self, transactional_ids: Collection[str]) -> dict[str, Description | ErrorCode]:
        response = await _response_or_error(describe_transactions(self._cluster, transactional_ids))
        if isinstance(response, ErrorCode):
            return dict.fromkeys(transactional_ids, response)
        described: dict[str, Description | ErrorCode] = {}
        for transactional_id, each in response.items():
            if not isinstance(each, Refusal):
                described[transactional_id] = Description(each.state, each.producer_id, each.producer_epoch)
            elif each.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                described[transactional_id] = NO_SUCH_ID
            else:
                described[transactional_id] = each.error
        return described

    async def topic_ids(self, names: Collection[str]) -> dict[str, bytes]:
        if not names:
            return {}
        try:
            response = await self._with_retries(lambda: self._cluster.refresh(names))
        except ClientError as error:
            raise SinkUnavailable(f"the ids of {', '.join(sorted(names))} are not known: {error}") from error
        known = [each for each in response.topics if not each.error_code and each.topic_id != ZERO_UUID]
        return {each.name: each.topic_id for each in known if each.name is not None}

    async def open_transactions(self, prefix: str) -> list[OpenTransaction]:
        try:
            listed = await self._with_retries(lambda: list_transactions(self._cluster, states=[ONGOING]))
        except ClientError as error:
            raise SinkUnavailable(f"open transactions cannot be listed: {error}") from error
        ids = [each.transactional_id for each in listed if each.transactional_id.startswith(prefix)]
        described = await self.describe(ids) if ids else {}
        return [
            OpenTransaction(transactional_id, each.producer_id, each.epoch)
            for transactional_id, each in described.items()
            if isinstance(each, Description) and each.state == ONGOING
        ]

    async def open_writer(self, transactional_id: str) -> RowWriter:
        return await self._make_writer(transactional_id)

    def patience(self, *, is_decided: bool = False) -> RetryPatience:
        seconds = self._settings.patience_seconds
        if is_decided:
            seconds = max(seconds, self._settings.transaction_timeout_ms / 1000)
        return RetryPatience(Retry(Backoff(rng=self._cluster.rng), seconds), seconds)

    async def _with_retries(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Retry what raises ``ClientError``, as ``retry_transient`` does for error codes."""
        return await retry_operation(self._cluster, self._settings.patience_seconds, operation)

    # The state topic

    async def state_partitions(self) -> list[TopicPartition]:
        return await self._log.partitions()

    def known_home(self, sink: str) -> TopicPartition | None:
        return self._log.known_home(sink)

    def keep_home(self, sink: str, home: TopicPartition) -> None:
        self._log.keep_home(sink, home)

    async def read_state(self, sink: str, home: TopicPartition, since: int | None = None) -> StateRecord | None:
        return await self._log.read(sink, home, since)

    def state_position(self, sink: str, home: TopicPartition) -> int:
        return self._log.position(sink, home)

    async def find_sinks(self, former: FormerNames) -> list[str]:
        return await self._log.find_sinks(former)

    async def append_state(self, driver: Driver, record: StateRecord, home: TopicPartition, version: int) -> ErrorCode:
        if version < 2:
            error = await self._add_partition(driver, record.sink, home)
            if error is not ErrorCode.NONE:
                return error
        batch = build_batch(
            [NewRecord(self._wall_clock(), record.sink.encode(), record.encode())],
            compression=Compression.GZIP,
            producer_id=driver.producer_id,
            producer_epoch=driver.epoch,
            base_sequence=driver.sequence,
            is_transactional=True,
        )

        def build(partitions: Mapping[TopicPartition, bytearray]) -> ProduceRequest:
            data = [PartitionProduceData(index=tp.partition, records=records) for tp, records in partitions.items()]
            return ProduceRequest(
                transactional_id=driver_id(record.sink),
                acks=_ACKS_ALL,
                timeout_ms=self._settings.transaction_timeout_ms,
                topic_data=[TopicProduceData(name=home.topic, partition_data=data)],
            )

        at_most = _LAST_PRODUCE_OF_PROTOCOL_1 if version < 2 else _LAST_PRODUCE_WITH_NAMES
        response = await _response_or_error(
            call_leaders(self._cluster, {home: batch}, build, ProduceResponse, _produced, at_most=at_most)
        )
        if isinstance(response, ErrorCode):
            return response
        error = response.failed.get(home, ErrorCode.NONE)
        return ErrorCode.NONE if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else error

    async def _add_partition(self, driver: Driver, sink: str, home: TopicPartition) -> ErrorCode:
        topic = AddPartitionsToTxnTopic(name=home.topic, partitions=[home.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=driver_id(sink),
            v3_and_below_producer_id=driver.producer_id,
            v3_and_below_producer_epoch=driver.epoch,
            v3_and_below_topics=[topic],
        )
        response = await _response_or_error(
            self._cluster.call(
                Coordinator.of_transactional_id(driver_id(sink)),
                request,
                AddPartitionsToTxnResponse,
                errors=_added,
                at_most=_LAST_ADD_FOR_CLIENTS,
            )
        )
        if isinstance(response, ErrorCode):
            return response
        return error_code(next(iter(_added(response)), ErrorCode.UNKNOWN_SERVER_ERROR))


async def _response_or_error(pending: Awaitable[T]) -> T | ErrorCode:
    """Return a response, or the error code for its exception."""
    try:
        return await pending
    except BrokerRefused as error:
        return error.refusal.error
    except VersionNotSupported:
        return ErrorCode.UNSUPPORTED_VERSION
    except ClientError:
        return ErrorCode.NETWORK_EXCEPTION


def _added(response: AddPartitionsToTxnResponse) -> list[int]:
    return [
        partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def _produced(response: ProduceResponse) -> list[tuple[TopicPartition, int, None]]:
    return [
        (TopicPartition(topic.name, partition.index), partition.error_code, None)
        for topic in response.responses
        for partition in topic.partition_responses
    ]
