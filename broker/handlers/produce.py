"""Produce (API key 0): append batches to partitions that this broker leads.

Each partition of a request has its own outcome. A batch is validated (``protocol.records.validation``), made to conform
to its topic's codec and timestamp type where the topic wants that, and appended; a batch that the log already has is
answered like the first time, with its original offset.

acks: 0 is not answered at all, and an error closes the connection instead, which is the only way to tell; 1 is answered
when the leader has the records; -1 when all in-sync replicas have them, in the same call if this broker is the only
one. Anything else is INVALID_REQUIRED_ACKS. A request that must wait for replicas leaves a future behind, with all of
its records appended.

Whatever goes wrong unexpectedly is told as KAFKA_STORAGE_ERROR, never UNKNOWN_SERVER_ERROR: producers take the first
for "try again", and the second for the end of their idempotence.

Transactions: a transactional batch needs a transactional id that the client may write to, and one request carries one
producer's. Before the first batch of a transaction on a partition its coordinator is asked whether the partition
belongs to it, or, from version 12 on, told to add it (``broker.replication.transaction_verification``). While the
coordinator cannot say, this handler is a coroutine, and nothing of the connection overtakes it.

Internal topics are written by their coordinators only: INVALID_TOPIC_EXCEPTION. (Kafka makes an exception for a client
that calls itself ``__admin_client``; here nobody is believed.)

Versions: 0-2 carried older batch formats and are advertised because librdkafka turns compression off without them; they
are not served. 3 is the first with batches of version 2; 5 answers the log start offset; 7 allows zstd; 8 has error
messages; 9 is flexible; 10 answers the current leader (KIP-951); 11 may be answered with TRANSACTION_ABORTABLE; 12 adds
its partitions to the transaction, and may be answered with CONCURRENT_TRANSACTIONS while the one before completes
(KIP-890); 13 has topic ids for names (KIP-516), of which an unknown one is UNKNOWN_TOPIC_ID.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from broker.dispatch import CloseConnection, Later, Outcome, RequestContext, handles
from broker.replication.delayed_produce import DelayedProduce, Unacknowledged
from broker.replication.leader_hint import leader_hint
from broker.replication.transaction_verification import Errors, Pending
from broker.security.authorizer import Operation, ResourceType
from broker.storage.log_config import LogConfig
from broker.storage.partition_log import AppendOrigin
from coordinator.controller.cluster_image import INTERNAL_TOPICS
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.compression import Compression
from protocol.records.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE, TRANSACTIONAL_BIT, BatchHeader
from protocol.records.validation import conform_to_topic, validate_produced
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.server import Broker

_ACKS: Final = frozenset({-1, 0, 1})
_NO_ACKS: Final = 0
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_CURRENT_LEADER: Final = 10
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_UNKNOWN_OFFSET: Final = -1

_ATTRIBUTES: Final = ATTRIBUTES_POSITION + 1
"""Where a batch has the byte with the attributes that are in use."""
_PRODUCER: Final = slice(43, 53)
"""Where a batch has its producer id and epoch."""

_NO_ERRORS: Final[Errors] = {}

_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""Values of ``compression.type`` that override the producer's choice."""

_MESSAGES: Final = {
    ErrorCode.INVALID_RECORD: "The batch, or a record in it, is not what the topic accepts",
    ErrorCode.INVALID_TIMESTAMP: "A timestamp lies outside of what the topic accepts",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Internal topics are written by the broker only",
    ErrorCode.INVALID_TXN_STATE: "The partition was not added to the transaction",
    ErrorCode.TRANSACTION_ABORTABLE: "The partition was not added to the transaction",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The producer's transaction before this one is not complete yet",
    ErrorCode.UNKNOWN_TOPIC_ID: "No topic here has this id",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Not enough replicas, or the transaction could not be verified yet",
}


def error_response(request: ProduceRequest, version: int, error: ErrorCode) -> ProduceResponse:
    """Every partition failed for a reason that nobody foresaw."""
    if request.acks == _NO_ACKS:
        raise CloseConnection("a produce without acks failed")
    return _refused(request, ErrorCode.KAFKA_STORAGE_ERROR)


@handles(ApiKey.PRODUCE, versions="3-13", advertised="0-13", error_response=error_response)
def handle_produce(broker: "Broker", context: RequestContext, request: ProduceRequest) -> Outcome:
    refusal = _refusal(broker, context, request)
    if refusal:
        return _answered(broker, context, request, _refused(request, refusal))
    if context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        for topic in request.topic_data:
            topic.name = broker.replica_manager.topic_name(topic.topic_id) or ""
    transactional_id = request.transactional_id
    if transactional_id is None:
        return _append(broker, context, request, _NO_ERRORS)
    may_write = partial(_may_write, broker, context)
    verdict = broker.transaction_verifier.verify_produce(transactional_id, request, context.api_version, may_write)
    if isinstance(verdict, dict):
        return _append(broker, context, request, verdict)
    return _append_when_verified(broker, context, request, verdict)


async def _append_when_verified(
    broker: "Broker", context: RequestContext, request: ProduceRequest, pending: Pending
) -> ProduceResponse | Later | None:
    errors = await pending.decided()
    return _append(broker, context, request, errors)


def _append(
    broker: "Broker", context: RequestContext, request: ProduceRequest, unverified: Errors
) -> ProduceResponse | Later | None:
    appends = _Appends(broker, context, request, unverified)
    response = appends.run()
    response.throttle_time_ms = broker.quotas.record_produce(context, appends.size)
    if not appends.unacknowledged:
        return _answered(broker, context, request, response)
    delayed = DelayedProduce(
        response, acks=request.acks, complete=lambda response: _with_leaders(broker, context, response)
    )
    return delayed.start(appends.unacknowledged, request.timeout_ms)


class _Appends:
    """The appends of one request."""

    __slots__ = ("_broker", "_context", "_now_ms", "_request", "_unverified", "size", "unacknowledged")

    def __init__(self, broker: "Broker", context: RequestContext, request: ProduceRequest, unverified: Errors) -> None:
        self._unverified = unverified
        self._broker = broker
        self._context = context
        self._request = request
        self._now_ms = broker.wall_clock()
        self.size = 0
        self.unacknowledged: list[Unacknowledged] = []

    def run(self) -> ProduceResponse:
        responses = []
        for topic in self._request.topic_data:
            name, topic_id = topic.name, topic.topic_id
            error = self._topic_error(name, topic_id)
            partitions = [
                _error(data.index, error) if error else self._append(name, topic_id, data)
                for data in topic.partition_data
            ]
            responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions))
        return ProduceResponse(responses=responses)

    def _topic_error(self, name: str, topic_id: bytes) -> ErrorCode:
        if not name and self._context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._broker.authorizer.authorize(self._context, Operation.WRITE, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE

    def _append(self, topic: str, topic_id: bytes, data: PartitionProduceData) -> PartitionProduceResponse:
        partition = self._broker.replica_manager.led_partition((topic, data.index))
        if isinstance(partition, ErrorCode):
            return _error(data.index, partition)
        if topic_id is not ZERO_UUID and topic_id != partition.topic_id != ZERO_UUID:
            return _error(data.index, ErrorCode.UNKNOWN_TOPIC_ID)  # Another topic of the same name.
        log = partition.led_log
        assert log is not None
        valid = self._validated(data, log.config)
        if isinstance(valid, ErrorCode):
            return _error(data.index, valid)
        if self._unverified and (error := self._unverified.get(partition.topic_partition)):
            return _error(data.index, error)
        batch, header = valid
        acks = self._request.acks
        info = partition.append(batch, header, origin=AppendOrigin.CLIENT, required_acks=acks)
        if isinstance(info, ErrorCode):
            return _error(data.index, info)
        self.size += header.size
        response = PartitionProduceResponse(
            index=data.index,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
        )
        end_offset = info.last_offset + 1
        if acks != _NO_ACKS and not partition.is_acknowledged(end_offset, acks):
            self.unacknowledged.append(Unacknowledged(partition, end_offset, response))
        return response

    def _validated(self, data: PartitionProduceData, config: LogConfig) -> tuple[memoryview, BatchHeader] | ErrorCode:
        """The batch as it will be stored, and its header."""
        records = data.records
        if records is not None and (not isinstance(records, memoryview) or records.readonly):
            # Not from a socket, whose frames are ours to write to.
            records = memoryview(bytearray(b"".join(records) if isinstance(records, list) else records))
        settings = self._broker.config
        log_append_time = config.timestamp_type == "LogAppendTime"
        header = validate_produced(
            records,
            max_message_bytes=config.max_message_bytes,
            now_ms=self._now_ms,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            compacted=config.compacts,
            full=settings.oncelog_validate_records == "full",
            max_decompressed_bytes=settings.oncelog_max_decompressed_bytes,
            log_append_time=log_append_time,
            allow_zstd=self._context.api_version >= _FIRST_VERSION_WITH_ZSTD,
        )
        if isinstance(header, ErrorCode):
            return header
        assert records is not None
        if not log_append_time and config.compression_type == "producer":
            return records, header
        return conform_to_topic(
            records,
            header,
            compression=_CODECS.get(config.compression_type),
            log_append_time_ms=self._now_ms if log_append_time else None,
            max_message_bytes=config.max_message_bytes,
            max_decompressed_bytes=settings.oncelog_max_decompressed_bytes,
        )


def _refusal(broker: "Broker", context: RequestContext, request: ProduceRequest) -> ErrorCode:
    """What is wrong with the request as a whole."""
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    producers: set[bytes] | None = None
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, memoryview) and _is_transactional(records):
                producers = producers or set()
                producers.add(bytes(records[_PRODUCER]))
    if producers is None:
        return ErrorCode.NONE
    transactional_id = request.transactional_id
    if transactional_id is None or not broker.authorizer.authorize(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producers) > 1 else ErrorCode.NONE


def _may_write(broker: "Broker", context: RequestContext, topic: str) -> bool:
    """Whether batches of a topic may be appended at all, as far as the topic's name goes."""
    return topic not in INTERNAL_TOPICS and broker.authorizer.authorize(
        context, Operation.WRITE, ResourceType.TOPIC, topic
    )


def _is_transactional(records: memoryview) -> bool:
    """Whether bytes that may be a batch say so; what they are is decided later."""
    return len(records) >= HEADER_SIZE and records[_ATTRIBUTES] & TRANSACTIONAL_BIT != 0


def _refused(request: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_error(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _error(index: int, error: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=error, base_offset=_UNKNOWN_OFFSET, error_message=_MESSAGES.get(error)
    )


def _answered(
    broker: "Broker", context: RequestContext, request: ProduceRequest, response: ProduceResponse
) -> ProduceResponse | None:
    if request.acks != _NO_ACKS:
        return _with_leaders(broker, context, response)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                error = ErrorCode(partition.error_code).name
                raise CloseConnection(f"a produce without acks to {topic.name}-{partition.index} failed: {error}")
    return None


def _with_leaders(broker: "Broker", context: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Tell where the leader is now, wherever it is not here."""
    if context.api_version < _FIRST_VERSION_WITH_CURRENT_LEADER:
        return response
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            hint = leader_hint(
                broker.replica_manager,
                broker.metadata.image,
                context.connection.listener_name,
                (topic.name, partition.index),
            )
            if hint is None:
                continue
            partition.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            if hint.host is not None:
                endpoints[hint.leader_id] = NodeEndpoint(
                    node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
                )
    response.node_endpoints = list(endpoints.values())
    return response
