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
decided, this handler is a coroutine, and no later request of the connection overtakes it. Up to version 11, a batch
that comes over another connection than the last one must be repeated
(``oncelog.broker.transactions.batch_challenge``).

A request may name any number of partitions, and a batch may hold any amount of records to walk. So judging is sliced
work (``SlicedWork``): batch after batch, with a pause whenever the budget of a slice is used up. After a pause the
partition is looked up again. A batch that needs no verification is appended as soon as it is judged. The batches of a
transaction are all judged first; then they are verified and appended in one step, ``_PART_SIZE`` partitions at a time.

A partition that a request names more than once is appended once, with the batch that comes last, and has one result,
as in Kafka.

Internal topics are written by their coordinators only: INVALID_TOPIC_EXCEPTION. (Kafka makes an exception for a client
that calls itself ``__admin_client``; here no client is exempt.)

Versions: 0-2 have messages of format 0 or 1, which become one batch (``oncelog.protocol.records.up_conversion``); 3 is
the first with batches of format 2; 4 may get KAFKA_STORAGE_ERROR; 5 returns the log start offset; 7 allows zstd; 8 has
error messages; 9 is flexible; 10 returns the current leader (KIP-951); 11 may get TRANSACTION_ABORTABLE; 12 adds its
partitions to the transaction, and may get CONCURRENT_TRANSACTIONS while the one before completes (KIP-890); 13 has
topic ids (KIP-516), of which an unknown one is UNKNOWN_TOPIC_ID.
"""

from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from oncelog.broker.dispatch.api_handler import Later, Outcome, handles
from oncelog.broker.dispatch.request import CloseConnection, RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.handlers.refused_batch import not_appended, refused_batch, with_current_leaders
from oncelog.broker.parts import Broker
from oncelog.broker.replication.delayed_produce import DelayedProduce, Unacknowledged
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin
from oncelog.broker.transactions.batch_challenge import CHALLENGE_ERROR
from oncelog.broker.transactions.verification import Errors, Pending, WrittenBatch
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import (
    COMPRESSION_MASK,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    peek_sequenced,
    peek_transactional_producer,
)
from oncelog.protocol.records.record_walk import RecordRules, WorkBudget
from oncelog.protocol.records.up_conversion import convert_message_set
from oncelog.protocol.records.validation import (
    BatchRules,
    Conformed,
    RejectedRecords,
    conform_batch,
    counts_too_many,
    validate_header,
)
from oncelog.protocol.schema import ZERO_UUID

_ACKS: Final = frozenset({-1, 0, 1})
_NO_ACKS: Final = 0
_FIRST_VERSION_WITH_BATCHES: Final = 3
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13

_PART_SIZE: Final = 64
"""Partitions of a transactional request that are verified and appended in one step."""
_LARGE: Final = 1_000
"""A request with more partitions is not even looked through in the turn of the loop in which it was decoded."""
_BATCH_UNITS: Final = 50
"""What a batch costs that is appended without a walk, in the units of a ``WorkBudget``."""
_PERHAPS_ZOOKEEPER: Final = (
    "a produce without topics (a ZooKeeper client begins with the same bytes: is this address in a zookeeper.connect?)"
)
_NOT_LED: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
_ALL_VERIFIED: Final[Errors] = {}
_NO_ERROR: Final = ErrorCode.NONE  # Bound once: looking up a member of an enum takes as long as a call.

_Judged: TypeAlias = Conformed | ErrorCode | RejectedRecords
"""A batch as it will be stored, or why it is not."""


_Unwalked: TypeAlias = partial[Generator[None, None, _Judged]]
"""The walk over the records of a batch, or the conversion of old messages, that is still to be made with a budget."""


class _Batch:
    """One batch of a request, on its way from the request to its response."""

    __slots__ = ("data", "judged", "partition", "topic")

    def __init__(self, topic: TopicProduceResponse, data: PartitionProduceData) -> None:
        self.topic = topic
        """The response of its topic."""
        self.data = data
        self.partition: LeadingPartition | ErrorCode = _NO_ERROR
        """Where it goes, as of this turn of the loop; or why it cannot be appended."""
        self.judged: _Judged | _Unwalked = _NO_ERROR
        """Without error: not judged yet."""


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
    return _refused(*_collect(request), ErrorCode.KAFKA_STORAGE_ERROR)


@handles(ApiKey.PRODUCE, versions="0-13", error_response=error_response)
def handle_produce(broker: Broker, context: RequestContext, request: ProduceRequest) -> Outcome:
    topics = request.topic_data
    if not (topics or request.acks or context.api_version or context.correlation_id or context.client_id):
        raise CloseConnection(_PERHAPS_ZOOKEEPER)
    has_one_batch = len(topics) == 1 and len(topics[0].partition_data) == 1  # As most requests have.
    if not has_one_batch and sum([len(topic.partition_data) for topic in topics]) > _LARGE:
        return _produce_large(broker, context, request)
    return _Produce(broker, context, request).begin()


async def _produce_large(broker: Broker, context: RequestContext, request: ProduceRequest) -> Any:
    steps = _pause_after(lambda: _Produce(broker, context, request))
    produce = await broker.sliced_work.run(steps, new_budget(), context.connection)
    outcome = produce.begin()
    return await outcome if isinstance(outcome, Coroutine) else outcome


def _pause_after(step: Callable[[], "_Produce"]) -> Steps["_Produce"]:
    produce = step()
    yield None
    return produce


def _collect(request: ProduceRequest) -> tuple[list[TopicProduceResponse], list[_Batch]]:
    """Return the topics' responses, still empty, and the batches: of each partition the one that comes last."""
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
        (topic,) = request.topic_data
        response = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        return [response], [_Batch(response, topic.partition_data[0])]
    topics: dict[tuple[str, bytes], TopicProduceResponse] = {}
    batches: dict[tuple[str, bytes, int], _Batch] = {}
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        of_topic = topics.get((name, topic_id))
        if of_topic is None:
            of_topic = topics[name, topic_id] = TopicProduceResponse(name=name, topic_id=topic_id)
        for data in topic.partition_data:
            known = batches.get((name, topic_id, data.index))
            if known is None:
                batches[name, topic_id, data.index] = _Batch(of_topic, data)
            else:
                known.data = data
    return list(topics.values()), list(batches.values())


class _Produce:
    """One request, whose batches are judged, verified if they are transactional, and appended."""

    __slots__ = ("_batches", "_broker", "_context", "_now_ms", "_request", "_responses", "_unacknowledged")

    def __init__(self, broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
        if context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            for topic in request.topic_data:
                topic.name = broker.replica_manager.topic_name(topic.topic_id) or ""
        self._broker = broker
        self._context = context
        self._request = request
        self._now_ms = broker.wall_clock()
        self._unacknowledged: list[Unacknowledged] = []
        self._responses, self._batches = _collect(request)

    def begin(self) -> Outcome:
        """Do the work at once if it is little and its transaction's coordinator has decided, else in a coroutine."""
        batches = self._batches
        written = _transactional_batches(batches) if self._context.api_version >= _FIRST_VERSION_WITH_BATCHES else ()
        refusal = self._refusal(written)
        if refusal:
            response = _refused(self._responses, batches, refusal)
            response.throttle_time_ms = self._throttle_ms()
            return self._respond(response)
        if written and len(batches) > _PART_SIZE:
            return self._append_parts()
        judging = self._begin_judging(batches, appends=not written)
        if judging is not None:
            return self._append_when_judged(judging, appended=not written)
        if written:
            verdict = self._verify(written)
            if isinstance(verdict, Pending):
                return self._append_when_verified(verdict)
            self._append_all(batches, verdict)
        return self._outcome()

    async def _append_when_verified(self, pending: Pending) -> ProduceResponse | Later | None:
        errors = await pending.decided()
        self._append_after_pause(self._batches, errors)
        return self._outcome()

    async def _append_when_judged(
        self, judging: Coroutine[Any, Any, None], *, appended: bool
    ) -> ProduceResponse | Later | None:
        await judging
        if not appended:
            self._append_after_pause(self._batches, await self._verified(self._batches))
        return self._outcome()

    async def _append_parts(self) -> ProduceResponse | Later | None:
        budget = new_budget()
        for start in range(0, len(self._batches), _PART_SIZE):
            part = self._batches[start : start + _PART_SIZE]
            steps = self._judge_all(part, budget, appends=False)
            await self._broker.sliced_work.run(steps, budget, self._context.connection)
            self._append_after_pause(part, await self._verified(part))
        return self._outcome()

    def _outcome(self) -> ProduceResponse | Later | None:
        """Return the response, once everything is appended, or a future of it."""
        broker, context = self._broker, self._context
        response = ProduceResponse(responses=self._responses, throttle_time_ms=self._throttle_ms())
        if not self._unacknowledged:
            return self._respond(response)
        delayed = DelayedProduce(
            response, acks=self._request.acks, complete=lambda response: with_current_leaders(broker, context, response)
        )
        return delayed.start(self._unacknowledged, self._request.timeout_ms)

    def _throttle_ms(self) -> int:
        """Return for how long the client is throttled for all records of the request, refused ones included."""
        if not self._broker.quotas.limits_produce:
            return 0
        size = sum([len(batch.data.records) for batch in self._batches if batch.data.records is not None])
        return self._broker.quotas.record_produce(self._context, size)

    def _respond(self, response: ProduceResponse) -> ProduceResponse | None:
        if self._request.acks != _NO_ACKS:
            return with_current_leaders(self._broker, self._context, response)
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    error = ErrorCode(partition.error_code).name
                    raise CloseConnection(f"a produce without acks to {topic.name}-{partition.index} failed: {error}")
        return None

    # The request as a whole

    def _refusal(self, written: Sequence[WrittenBatch]) -> ErrorCode:
        """Return the error of the request as a whole; ``written``: its transactional batches."""
        if self._request.acks not in _ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if not written:
            return _NO_ERROR
        transactional_id = self._request.transactional_id
        if transactional_id is None or not self._broker.authorizer.authorize(
            self._context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if len(written) > 1 and len({producer[:2] for _, _, producer in written}) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return _NO_ERROR

    def _verify(self, written: Sequence[WrittenBatch]) -> Errors | Pending:
        """Return the coordinator's verdict on transactional batches of the request."""
        broker, context, transactional_id = self._broker, self._context, self._request.transactional_id
        assert transactional_id is not None, "a request without one has no transactional batches"
        may_write = partial(_may_write, broker, context)
        return broker.transaction_verifier.verify_produce(
            transactional_id, written, self._request.timeout_ms, context.api_version, may_write
        )

    async def _verified(self, batches: Sequence[_Batch]) -> Errors:
        """Return the coordinator's verdict once it is known."""
        written = _transactional_batches(batches)
        verdict = self._verify(written) if written else _ALL_VERIFIED  # Other parts of the request have some.
        return await verdict.decided() if isinstance(verdict, Pending) else verdict

    # Judging

    def _begin_judging(self, batches: Sequence[_Batch], *, appends: bool) -> Coroutine[Any, Any, None] | None:
        """Judge batches. Returns None if that is done, else what does the rest in later turns of the loop.

        ``appends``: append each batch at once, as it needs no verification.
        """
        if len(batches) == 1:  # As mostly: without the cost of slices, unless it must be walked.
            (batch,) = batches
            self._judge(batch, self._topic_error(batch.topic.name))
            if not isinstance(batch.judged, partial):
                if appends:
                    self._append_all(batches, _ALL_VERIFIED)
                return None
        budget = new_budget()
        steps = self._judge_all(batches, budget, appends=appends)
        return self._broker.sliced_work.start(steps, budget, self._context.connection, holds_window=True)

    def _judge_all(self, batches: Sequence[_Batch], budget: WorkBudget, *, appends: bool) -> Steps[None]:
        topic, error = None, _NO_ERROR
        for batch in batches:
            if budget.left <= 0:
                yield None
            budget.left -= _BATCH_UNITS
            if batch.topic is not topic:
                topic, error = batch.topic, self._topic_error(batch.topic.name)
            if batch.judged is _NO_ERROR:
                self._judge(batch, error)
            if isinstance(unwalked := batch.judged, partial):
                batch.judged = yield from unwalked(budget)
                self._find(batch)
            if appends:
                self._append_all((batch,), _ALL_VERIFIED)

    def _topic_error(self, name: str) -> ErrorCode:
        if not name and self._context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._broker.authorizer.authorize(self._context, Operation.WRITE, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else _NO_ERROR

    def _led(self, batch: _Batch) -> LeadingPartition | ErrorCode:
        topic = batch.topic
        partition = self._broker.replica_manager.led_partition((topic.name, batch.data.index))
        topic_id = topic.topic_id
        if topic_id is not ZERO_UUID and isinstance(partition, LeadingPartition):
            known_id = partition.log.topic_id
            if known_id is not None and topic_id != known_id:
                return ErrorCode.UNKNOWN_TOPIC_ID  # Another topic of the same name.
        return partition

    def _find(self, batch: _Batch, topic_error: ErrorCode = _NO_ERROR) -> None:
        """Note where a batch goes, or why it cannot be appended."""
        partition = batch.partition = topic_error or self._led(batch)
        if isinstance(partition, LeadingPartition) or partition not in _NOT_LED:
            return
        if (header := peek_sequenced(batch.data.records)) is not None:
            early, topic = self._broker.replica_manager.early_batches, batch.topic
            early.refuse((topic.name, batch.data.index), topic.topic_id, header)

    def _judge(self, batch: _Batch, topic_error: ErrorCode) -> None:
        """Judge a batch by its header, and find out whether that is enough."""
        self._find(batch, topic_error)
        partition = batch.partition
        if not isinstance(partition, LeadingPartition):
            batch.judged = partition
            return
        config = partition.log.config
        records = batch.data.records
        if records is not None and (not isinstance(records, memoryview) or records.readonly):
            # Not from a socket, whose frames are ours to write to.
            records = memoryview(bytearray(b"".join(records) if isinstance(records, list) else records))
        if self._context.api_version < _FIRST_VERSION_WITH_BATCHES:
            batch.judged = partial(convert_message_set, records or memoryview(b""), self._rules(config))
            return
        header = validate_header(
            records,
            max_message_bytes=config.max_message_bytes,
            allow_zstd=self._context.api_version >= _FIRST_VERSION_WITH_ZSTD,
        )
        if not isinstance(header, BatchHeader):
            batch.judged = header
            return
        assert records is not None
        if (
            config.compression_type != "producer"
            or config.timestamp_type == "LogAppendTime"
            or config.compacts
            or self._broker.config.oncelog_validate_records == "full"
            or (header.attributes & COMPRESSION_MASK and counts_too_many(header))
        ):
            batch.judged = partial(conform_batch, records, header, self._rules(config))
            return
        earliest, latest = self._now_ms - config.timestamp_before_max_ms, self._now_ms + config.timestamp_after_max_ms
        if earliest <= header.max_timestamp <= latest or header.max_timestamp == NO_TIMESTAMP:
            batch.judged = records, header
        else:
            batch.judged = ErrorCode.INVALID_TIMESTAMP

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

    # Appending

    def _append_after_pause(self, batches: Sequence[_Batch], unverified: Errors) -> None:
        """Append batches that were judged in an earlier turn of the loop: look their partitions up again."""
        for batch in batches:
            batch.partition = self._led(batch)
        self._append_all(batches, unverified)

    def _append_all(self, batches: Sequence[_Batch], unverified: Errors) -> None:
        """Append what was judged to be right and is not unverified: in the same step as the verification."""
        for batch in batches:
            partition, judged = batch.partition, batch.judged
            if unverified and isinstance(partition, LeadingPartition) and not isinstance(judged, RejectedRecords):
                partition = unverified.get(partition.topic_partition) or partition
            response = self._append(batch.data.index, partition, judged)
            if isinstance(batch.partition, LeadingPartition):
                traffic = batch.partition.traffic
                traffic.produced += 1
                if response.error_code:
                    traffic.refused_produces += 1
            batch.topic.partition_responses.append(response)

    def _append(
        self, index: int, partition: LeadingPartition | ErrorCode, judged: _Judged | _Unwalked
    ) -> PartitionProduceResponse:
        if not isinstance(judged, tuple) or not isinstance(partition, LeadingPartition):
            return not_appended(index, partition, judged)
        batch, header = judged
        acks = self._request.acks
        if header.attributes & TRANSACTIONAL_BIT and acks != _NO_ACKS:
            batches = self._broker.transaction_verifier.batches
            if batches.is_challenged(partition, header, self._request.transactional_id or "", self._context):
                partition.log.producer_state.withdraw_verification(header)
                return refused_batch(index, CHALLENGE_ERROR)
        info = partition.append(batch, header, origin=AppendOrigin.CLIENT, required_acks=acks)
        if not isinstance(info, AppendInfo):
            return refused_batch(index, info)
        if self._context.api_version < _FIRST_VERSION_WITH_BATCHES:
            partition.traffic.produce_conversions += header.records_count
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


def _transactional_batches(batches: Sequence[_Batch]) -> Sequence[WrittenBatch]:
    """Return the producers of all batches whose header has the transactional bit; they are validated later."""
    written: list[WrittenBatch] = []
    for batch in batches:
        records = batch.data.records
        if isinstance(records, memoryview) and (producer := peek_transactional_producer(records)) is not None:
            written.append((batch.topic.name, batch.data.index, producer))
    return written


def _may_write(broker: Broker, context: RequestContext, topic: str) -> bool:
    """Return whether batches of a topic may be appended at all, as far as the topic's name goes."""
    return topic not in INTERNAL_TOPICS and broker.authorizer.authorize(
        context, Operation.WRITE, ResourceType.TOPIC, topic
    )


def _refused(responses: list[TopicProduceResponse], batches: Sequence[_Batch], error: ErrorCode) -> ProduceResponse:
    for batch in batches:
        batch.topic.partition_responses.append(refused_batch(batch.data.index, error))
    return ProduceResponse(responses=responses)
