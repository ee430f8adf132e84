"""Produce (API key 0): append batches to partitions that this broker leads.

Each partition of a request has its own outcome. A batch is validated (``oncelog.protocol.records.validation``), made to
conform to its topic's codec and timestamp type where the topic wants that, and appended; a batch that the log already
has gets the same response as the first time, with its original offset.

acks: 0 gets no response, and an error closes the connection instead, as it cannot be reported otherwise; 1 gets its
response when the leader has the records; -1 when all in-sync replicas have them, in the same call if this broker is the
only one. Anything else is INVALID_REQUIRED_ACKS. A request that must wait for replicas leaves a future behind, with all
of its records appended.

An unexpected exception is returned as KAFKA_STORAGE_ERROR, never as UNKNOWN_SERVER_ERROR: producers retry the first,
and lose their idempotence by the second.

Transactions: a transactional batch needs a transactional id that the client may write to, and one request carries one
producer's. Before the first batch of a transaction on a partition its coordinator verifies that the partition belongs
to it, or, from version 12 on, adds it (``oncelog.broker.transactions.verification``). Until the coordinator has
decided, this handler is a coroutine, and no later request of the connection overtakes it.

A request may name any number of partitions, and a batch may hold any amount of records to walk. So this is sliced work
(``SlicedWork``): batch after batch, with a pause whenever the budget of a slice is used up. After a
pause the partition is looked up again. The batches of a transaction are all walked first; then they are verified and
appended in one step, ``_PART_SIZE`` partitions at a time.

A partition that a request names more than once is appended once, with the batch that comes last, and has one result,
as in Kafka.

Internal topics are written by their coordinators only: INVALID_TOPIC_EXCEPTION. (Kafka makes an exception for a client
that calls itself ``__admin_client``; here no client is exempt.)

Versions: 0-2 carried older batch formats and are advertised because librdkafka turns compression off without them; they
are not served. 3 is the first with batches of version 2; 5 returns the log start offset; 7 allows zstd; 8 has error
messages; 9 is flexible; 10 returns the current leader (KIP-951); 11 may get TRANSACTION_ABORTABLE; 12 adds its
partitions to the transaction, and may get CONCURRENT_TRANSACTIONS while the one before completes (KIP-890); 13 has
topic ids for names (KIP-516), of which an unknown one is UNKNOWN_TOPIC_ID.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from oncelog.broker.dispatch.api_handler import Later, Outcome, handles
from oncelog.broker.dispatch.request import CloseConnection, RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.handlers.refused_batch import refused_batch, rejected_records
from oncelog.broker.parts import Broker
from oncelog.broker.replication.delayed_produce import DelayedProduce, Unacknowledged
from oncelog.broker.replication.leader_hint import leader_hint
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.broker.transactions.verification import Errors, Pending, WrittenBatch
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import (
    COMPRESSION_MASK,
    NO_TIMESTAMP,
    BatchHeader,
    peek_transactional_producer,
)
from oncelog.protocol.records.record_walk import RecordRules
from oncelog.protocol.records.validation import (
    BatchRules,
    Conformed,
    RejectedRecords,
    conform_batch,
    counts_too_many,
    validate_header,
)
from oncelog.protocol.schema import ZERO_UUID, Message

_ACKS: Final = frozenset({-1, 0, 1})
_NO_ACKS: Final = 0
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_CURRENT_LEADER: Final = 10
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13

_PART_SIZE: Final = 64
"""Partitions of a transactional request that are verified and appended in one step."""
_LARGE: Final = 1_000
"""A request with more partitions is not even looked through in the turn of the loop in which it was decoded."""
_LOOKUP_UNITS: Final = 4
_APPEND_UNITS: Final = 50
"""What a batch that is refused or appended costs, in the units of a ``WorkBudget``."""

_Judged: TypeAlias = Conformed | ErrorCode | RejectedRecords
"""A batch as it will be stored, or why it is not."""


_NOTHING_JUDGED: Final[dict[tuple[str, int], _Judged]] = {}


class _Unwalked(NamedTuple):
    """A batch with a valid header whose records must be walked."""

    batch: memoryview
    header: BatchHeader
    rules: BatchRules


_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""Values of ``compression.type`` that override the producer's choice."""


def error_response(request: ProduceRequest, version: int, error: ErrorCode) -> ProduceResponse:
    """Return KAFKA_STORAGE_ERROR for every partition after an unexpected exception."""
    if request.acks == _NO_ACKS:
        raise CloseConnection("a produce without acks failed")
    return _refused(request, ErrorCode.KAFKA_STORAGE_ERROR)


@handles(ApiKey.PRODUCE, versions="3-13", advertised="0-13", error_response=error_response)
def handle_produce(broker: Broker, context: RequestContext, request: ProduceRequest) -> Outcome:
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return _produce(broker, context, request, has_one_batch=True)
    if sum([len(topic.partition_data) for topic in topics]) > _LARGE:
        return _produce_large(broker, context, request)
    _merge_duplicates(request)
    return _produce(broker, context, request)


async def _produce_large(broker: Broker, context: RequestContext, request: ProduceRequest) -> Any:
    await broker.sliced_work.run(_pause_after(_merge_duplicates, request), new_budget(), context.connection)
    outcome = _produce(broker, context, request)
    return await outcome if isinstance(outcome, Coroutine) else outcome


def _pause_after(step: Callable[[ProduceRequest], None], request: ProduceRequest) -> Steps[None]:
    step(request)
    yield None


def _produce(
    broker: Broker, context: RequestContext, request: ProduceRequest, *, has_one_batch: bool = False
) -> Outcome:
    if context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        for topic in request.topic_data:
            topic.name = broker.replica_manager.topic_name(topic.topic_id) or ""
    written = _transactional_batches(request)
    refusal = _refusal(broker, context, request, written)
    if refusal:
        return _respond(broker, context, request, _refused(request, refusal))
    appends = _Appends(broker, context, request)
    if request.transactional_id is not None:
        return _produce_in_transaction(broker, context, request, appends, written)
    steps = appends.append_one() if has_one_batch else appends.append_all()
    if steps is None:
        return appends.outcome()
    return broker.sliced_work.start(steps, appends.budget, context.connection, holds_window=True)


def _produce_in_transaction(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    appends: "_Appends",
    written: Sequence[WrittenBatch],
) -> Outcome:
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        steps = appends.judge_one()
    else:
        parts = list(_parts(request))
        if len(parts) != 1:
            return _append_parts(broker, context, parts, appends)
        steps = appends.judge(request)
    if steps is not None:
        judging = broker.sliced_work.start(steps, appends.budget, context.connection, holds_window=True)
        if judging is not None:
            return _append_when_judged(judging, request, appends, written)
    verdict = appends.verify(written)
    if isinstance(verdict, Pending):
        return _append_when_verified(verdict, request, appends)
    appends.append_judged(request, verdict)
    return appends.outcome()


async def _append_when_verified(
    pending: Pending, request: ProduceRequest, appends: "_Appends"
) -> ProduceResponse | Later | None:
    errors = await pending.decided()
    appends.append_judged(request, errors)
    return appends.outcome()


async def _append_when_judged(
    judging: Coroutine[Any, Any, None],
    request: ProduceRequest,
    appends: "_Appends",
    written: Sequence[WrittenBatch],
) -> ProduceResponse | Later | None:
    await judging
    appends.append_judged(request, await appends.verified(written))
    return appends.outcome()


async def _append_parts(
    broker: Broker, context: RequestContext, parts: list[ProduceRequest], appends: "_Appends"
) -> ProduceResponse | Later | None:
    for part in parts:
        await broker.sliced_work.run(appends.judge(part), appends.budget, context.connection)
        appends.append_judged(part, await appends.verified(_transactional_batches(part)))
    return appends.outcome()


def _merge_duplicates(request: ProduceRequest) -> None:
    """Leave each partition one batch, the last one."""
    topics = request.topic_data
    if len({(topic.name, topic.topic_id) for topic in topics}) == len(topics) and all(
        len({data.index for data in topic.partition_data}) == len(topic.partition_data) for topic in topics
    ):
        return
    merged: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        partitions = merged.setdefault((topic.name, topic.topic_id), {})
        for data in topic.partition_data:
            partitions[data.index] = data
    request.topic_data = [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (name, topic_id), partitions in merged.items()
    ]


def _parts(request: ProduceRequest) -> Iterator[ProduceRequest]:
    """Yield the request itself, or as several requests of few partitions."""
    if sum([len(topic.partition_data) for topic in request.topic_data]) <= _PART_SIZE:
        yield request
        return
    for topic in request.topic_data:
        for start in range(0, len(topic.partition_data), _PART_SIZE):
            data = topic.partition_data[start : start + _PART_SIZE]
            part = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)
            yield ProduceRequest(
                transactional_id=request.transactional_id,
                acks=request.acks,
                timeout_ms=request.timeout_ms,
                topic_data=[part],
            )


class _Appends:
    """The appends of one request."""

    __slots__ = (
        "_broker",
        "_context",
        "_judged",
        "_now_ms",
        "_request",
        "_responses",
        "_size",
        "_unacknowledged",
        "budget",
    )

    def __init__(self, broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._now_ms = broker.wall_clock()
        self._size = 0
        self._responses: list[TopicProduceResponse] = []
        self._unacknowledged: list[Unacknowledged] = []
        self._judged: dict[tuple[str, int], _Judged] = _NOTHING_JUDGED
        self.budget = new_budget()

    def outcome(self) -> ProduceResponse | Later | None:
        """Return the response, once everything is appended, or a future of it."""
        broker, context = self._broker, self._context
        response = ProduceResponse(
            responses=self._responses, throttle_time_ms=broker.quotas.record_produce(context, self._size)
        )
        if not self._unacknowledged:
            return _respond(broker, context, self._request, response)
        delayed = DelayedProduce(
            response, acks=self._request.acks, complete=lambda response: _with_leaders(broker, context, response)
        )
        return delayed.start(self._unacknowledged, self._request.timeout_ms)

    # One batch after the other

    def append_one(self) -> Steps[Message | Later | None] | None:
        """Judge and append the only batch, as most requests have one; if it must be walked, the rest of the work."""
        topic = self._request.topic_data[0]
        data, name, topic_id = topic.partition_data[0], topic.name, topic.topic_id
        partition = self._topic_error(name) or self._led(name, topic_id, data.index)
        if isinstance(partition, ErrorCode):
            response = refused_batch(data.index, partition)
        else:
            judged = self._judge(data, partition)
            if isinstance(judged, _Unwalked):
                return self._append_walked(topic, data.index, judged)
            response = self._append(partition, data.index, judged)
        self._responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[response]))
        return None

    def _append_walked(self, topic: TopicProduceData, index: int, unwalked: _Unwalked) -> Steps[Message | Later | None]:
        judged = yield from conform_batch(*unwalked, self.budget)
        response = self._append(self._led(topic.name, topic.topic_id, index), index, judged)
        self._responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[response])
        )
        return self.outcome()

    def append_all(self) -> Steps[Message | Later | None]:
        """Judge and append batch after batch; returns the outcome."""
        budget = self.budget
        for topic in self._request.topic_data:
            name, topic_id = topic.name, topic.topic_id
            response = TopicProduceResponse(name=name, topic_id=topic_id)
            self._responses.append(response)
            responses, error = response.partition_responses, self._topic_error(name)
            for data in topic.partition_data:
                if budget.left <= 0:
                    yield None
                budget.left -= _LOOKUP_UNITS
                index = data.index
                partition = error or self._led(name, topic_id, index)
                if isinstance(partition, ErrorCode):
                    responses.append(refused_batch(index, partition))
                    continue
                judged = self._judge(data, partition)
                if isinstance(judged, _Unwalked):
                    judged = yield from conform_batch(*judged, self.budget)
                    partition = self._led(name, topic_id, index)
                responses.append(self._append(partition, index, judged))
        return self.outcome()

    # In a transaction

    def judge_one(self) -> Steps[None] | None:
        """Judge the only batch, and keep it for ``append_judged``; if it must be walked, the rest of the work."""
        topic = self._request.topic_data[0]
        data, name = topic.partition_data[0], topic.name
        partition = self._topic_error(name) or self._led(name, topic.topic_id, data.index)
        judged = partition if isinstance(partition, ErrorCode) else self._judge(data, partition)
        if isinstance(judged, _Unwalked):
            return self._walk_judged((name, data.index), judged)
        self._judged = {(name, data.index): judged}
        return None

    def _walk_judged(self, key: tuple[str, int], unwalked: _Unwalked) -> Steps[None]:
        self._judged = {key: (yield from conform_batch(*unwalked, self.budget))}

    def judge(self, request: ProduceRequest) -> Steps[None]:
        """Judge all batches of a part of the request, and keep them for ``append_judged``."""
        self._judged = {}
        for topic in request.topic_data:
            name, topic_id = topic.name, topic.topic_id
            error = self._topic_error(name)
            for data in topic.partition_data:
                if self.budget.left <= 0:
                    yield None
                self.budget.left -= _LOOKUP_UNITS
                partition = error or self._led(name, topic_id, data.index)
                judged = partition if isinstance(partition, ErrorCode) else self._judge(data, partition)
                if isinstance(judged, _Unwalked):
                    judged = yield from conform_batch(*judged, self.budget)
                self._judged[name, data.index] = judged

    def verify(self, written: Sequence[WrittenBatch]) -> Errors | Pending:
        """Return the coordinator's verdict on transactional batches of the request."""
        verifier, request, version = self._broker.transaction_verifier, self._request, self._context.api_version
        transactional_id = request.transactional_id
        assert transactional_id is not None
        may_write = partial(_may_write, self._broker, self._context)
        return verifier.verify_produce(transactional_id, written, request.timeout_ms, version, may_write)

    async def verified(self, written: Sequence[WrittenBatch]) -> Errors:
        """Return the coordinator's verdict once it is known."""
        verdict = self.verify(written)
        return await verdict.decided() if isinstance(verdict, Pending) else verdict

    def append_judged(self, request: ProduceRequest, unverified: Errors) -> None:
        """Append what was judged to be right and is not unverified: in the same step as the verification."""
        for topic in request.topic_data:
            name, responses = topic.name, self._responses_of(topic)
            for data in topic.partition_data:
                index = data.index
                judged = self._judged[name, index]
                if isinstance(judged, ErrorCode):
                    responses.append(refused_batch(index, judged))
                    continue
                partition = self._led(name, topic.topic_id, index)
                if unverified and isinstance(partition, LeadingPartition) and not isinstance(judged, RejectedRecords):
                    partition = unverified.get(partition.topic_partition) or partition
                responses.append(self._append(partition, index, judged))

    # One batch

    def _responses_of(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """Return the responses of a topic, which may come in parts."""
        last = self._responses[-1] if self._responses else None
        if last is None or (last.name, last.topic_id) != (topic.name, topic.topic_id):
            last = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._responses.append(last)
        return last.partition_responses

    def _topic_error(self, name: str) -> ErrorCode:
        if not name and self._context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._broker.authorizer.authorize(self._context, Operation.WRITE, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE

    def _led(self, topic: str, topic_id: bytes, index: int) -> LeadingPartition | ErrorCode:
        partition = self._broker.replica_manager.led_partition((topic, index))
        if isinstance(partition, ErrorCode):
            return partition
        known_id = partition.log.topic_id
        if topic_id is not ZERO_UUID and known_id is not None and topic_id != known_id:
            return ErrorCode.UNKNOWN_TOPIC_ID  # Another topic of the same name.
        return partition

    def _append(self, partition: LeadingPartition | ErrorCode, index: int, judged: _Judged) -> PartitionProduceResponse:
        if isinstance(partition, ErrorCode):
            return refused_batch(index, partition)
        if isinstance(judged, ErrorCode):
            return refused_batch(index, judged)
        if isinstance(judged, RejectedRecords):
            return rejected_records(index, judged, partition.log.log_start_offset)
        batch, header = judged
        self.budget.left -= _APPEND_UNITS
        acks = self._request.acks
        info = partition.append(batch, header, origin=AppendOrigin.CLIENT, required_acks=acks)
        if isinstance(info, ErrorCode):
            return refused_batch(index, info)
        self._size += len(batch)
        response = PartitionProduceResponse(
            index=index,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
        )
        end_offset = info.last_offset + 1
        if acks != _NO_ACKS and not partition.is_acknowledged(end_offset, acks):
            self._unacknowledged.append(Unacknowledged(partition, end_offset, response))
        return response

    def _judge(self, data: PartitionProduceData, partition: LeadingPartition) -> _Judged | _Unwalked:
        """Judge a batch by its header, and find out whether that is enough."""
        config = partition.log.config
        records = data.records
        if records is not None and (not isinstance(records, memoryview) or records.readonly):
            # Not from a socket, whose frames are ours to write to.
            records = memoryview(bytearray(b"".join(records) if isinstance(records, list) else records))
        header = validate_header(
            records,
            max_message_bytes=config.max_message_bytes,
            allow_zstd=self._context.api_version >= _FIRST_VERSION_WITH_ZSTD,
        )
        if not isinstance(header, BatchHeader):
            return header
        assert records is not None
        if (
            config.compression_type != "producer"
            or config.timestamp_type == "LogAppendTime"
            or config.compacts
            or self._broker.config.oncelog_validate_records == "full"
            or (header.attributes & COMPRESSION_MASK and counts_too_many(header))
        ):
            return _Unwalked(records, header, self._rules(config))
        earliest, latest = self._now_ms - config.timestamp_before_max_ms, self._now_ms + config.timestamp_after_max_ms
        if not earliest <= header.max_timestamp <= latest and header.max_timestamp != NO_TIMESTAMP:
            return ErrorCode.INVALID_TIMESTAMP
        return records, header

    def _rules(self, config: LogConfig) -> BatchRules:
        settings, now_ms = self._broker.config, self._now_ms
        most = settings.oncelog_record_max_headers
        if config.timestamp_type == "LogAppendTime":
            records = RecordRules(needs_keys=config.compacts, max_headers=most)
        else:
            earliest, latest = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
            records = RecordRules(earliest, latest, needs_keys=config.compacts, max_headers=most)
        return BatchRules(
            records,
            max_message_bytes=config.max_message_bytes,
            max_decompressed_bytes=settings.oncelog_max_decompressed_bytes,
            compression=_CODECS.get(config.compression_type),
            log_append_time_ms=now_ms if config.timestamp_type == "LogAppendTime" else None,
        )


def _transactional_batches(request: ProduceRequest) -> Sequence[WrittenBatch]:
    """Return the producers of all batches whose header has the transactional bit; they are validated later."""
    written: list[WrittenBatch] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, memoryview) and (producer := peek_transactional_producer(records)) is not None:
                written.append((topic.name, data.index, producer))
    return written


def _refusal(
    broker: Broker, context: RequestContext, request: ProduceRequest, written: Sequence[WrittenBatch]
) -> ErrorCode:
    """Return the error of the request as a whole; ``written``: its transactional batches."""
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if not written:
        return ErrorCode.NONE
    transactional_id = request.transactional_id
    if transactional_id is None or not broker.authorizer.authorize(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (producer_id, epoch, _), *others = [producer for _, _, producer in written]
    has_others = any((other_id, other_epoch) != (producer_id, epoch) for other_id, other_epoch, _ in others)
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if has_others else ErrorCode.NONE


def _may_write(broker: Broker, context: RequestContext, topic: str) -> bool:
    """Return whether batches of a topic may be appended at all, as far as the topic's name goes."""
    return topic not in INTERNAL_TOPICS and broker.authorizer.authorize(
        context, Operation.WRITE, ResourceType.TOPIC, topic
    )


def _refused(request: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[refused_batch(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _respond(
    broker: Broker, context: RequestContext, request: ProduceRequest, response: ProduceResponse
) -> ProduceResponse | None:
    if request.acks != _NO_ACKS:
        return _with_leaders(broker, context, response)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                error = ErrorCode(partition.error_code).name
                raise CloseConnection(f"a produce without acks to {topic.name}-{partition.index} failed: {error}")
    return None


def _with_leaders(broker: Broker, context: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Add the current leader of each partition that this broker does not lead."""
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
