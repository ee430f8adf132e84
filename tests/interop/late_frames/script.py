"""The script of the experiment for the proxy: follows each producer's history, applies the faults drawn for it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from struct import Struct

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_request_header, parse_response
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.end_txn import EndTxnResponse
from oncelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from oncelog.protocol.records.record_batch import BatchHeader, read_header
from tests.frame_proxy.exchange import Request
from tests.frame_proxy.script import FORWARD, Action, Cut, Delay, LateFrame
from tests.interop.late_frames.faults import Fault, Kind, draw, draw_written
from tests.interop.late_frames.history import NEWEST_ADD_PARTITIONS_OF_CLIENTS, History, Place, transactional_id_of

_SIZE = Struct(">i")
_FIRST_WITHOUT_ADD_PARTITIONS = 12


class _Producer(History):
    """A transactional id, its history, and its late frames."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = 0
        self.given_up: set[Place] = set()
        self.due: defaultdict[Place | None, list[LateFrame]] = defaultdict(list)


class LateFrames:
    """``topic`` is the one that is written to; at most ``most_faults`` for each transactional id.

    The batches of a client that never gives one up are held instead, and their repetitions go on.
    """

    def __init__(self, seed: int, topic: str, most_faults: int, *, gives_batches_up: bool = True) -> None:
        self._gives_batches_up = gives_batches_up
        self._seed = seed
        self._topic = topic
        self._most_faults = most_faults
        self._histories: defaultdict[str, _Producer] = defaultdict(_Producer)
        self._places: dict[tuple[int, int], tuple[_Producer, Place]] = {}
        """Of requests that are not answered yet, by connection and correlation id."""
        self.faults: Counter[tuple[Kind, ApiKey]] = Counter()
        self.responses: Counter[tuple[ApiKey, int, str]] = Counter()
        """How the broker answered late frames: API, version, error."""

    # What the proxy asks

    def requested(self, request: Request) -> Action:
        transactional_id = transactional_id_of(request)
        if transactional_id is None:
            return FORWARD
        history = self._histories[transactional_id]
        if request.api is ApiKey.INIT_PRODUCER_ID:
            history.begin_anew()
            return FORWARD
        place, is_new = history.enter(request)
        self._places[request.connection, request.header.correlation_id] = history, place
        if place in history.given_up:
            return self._cut(request)
        if not is_new:
            return FORWARD
        if request.api is ApiKey.PRODUCE and request.version >= _FIRST_WITHOUT_ADD_PARTITIONS:
            self._write_add_partitions(transactional_id, history, place, request)
        fault = draw(self._seed, _number(transactional_id), place)
        if fault is not None and fault.kind is Kind.GIVEN_UP and not self._gives_batches_up:
            fault = Fault(Kind.HELD, fault.arrives)
        if fault is None or not self._count(history, fault, request.api):
            return FORWARD
        return self._apply(fault, transactional_id, history, place, request)

    def responded(self, request: Request, response: memoryview) -> Sequence[LateFrame]:
        found = self._places.pop((request.connection, request.header.correlation_id), None)
        if found is None:
            return ()
        history, place = found
        if place.api is ApiKey.ADD_PARTITIONS_TO_TXN and place in history.due:
            if any(name != ErrorCode.NONE.name for name in _errors(place.api, request.version, response)):
                return ()
        return history.due.pop(place, ())

    def remaining(self) -> Sequence[LateFrame]:
        return [late for history in self._histories.values() for frames in history.due.values() for late in frames]

    def delivered(self, late: LateFrame, response: memoryview | None) -> None:
        header, _ = parse_request_header(memoryview(late.frame))
        api = ApiKey(header.api_key)
        names = ["no answer"] if response is None else list(_errors(api, header.api_version, response))
        for name in names:
            self.responses[api, header.api_version, name] += 1

    # Faults

    def _count(self, history: _Producer, fault: Fault, api: ApiKey) -> bool:
        if history.faults >= self._most_faults:
            return False
        history.faults += 1
        self.faults[fault.kind, api] += 1
        return True

    def _apply(self, fault: Fault, transactional_id: str, history: _Producer, place: Place, request: Request) -> Action:
        if fault.kind is Kind.OVERTAKEN:
            return Delay(fault.round_trips)
        is_held = fault.kind in (Kind.HELD, Kind.GIVEN_UP)
        late = LateFrame(request.frame, transactional_id, request.connection if is_held else None)
        history.due[fault.arrives].append(late)
        if fault.kind is Kind.GIVEN_UP:
            history.given_up.add(place)
        return self._cut(request) if is_held else FORWARD

    def _cut(self, request: Request) -> Cut:
        self._places.pop((request.connection, request.header.correlation_id))
        return Cut()

    def _write_add_partitions(self, transactional_id: str, history: _Producer, place: Place, request: Request) -> None:
        """Version 2 has this request only between brokers, or from a client that was older a moment ago."""
        fault, version = draw_written(self._seed, _number(transactional_id), place)
        if self._count(history, fault, ApiKey.ADD_PARTITIONS_TO_TXN):
            message = _add_partitions(transactional_id, self._topic, request, version)
            frame = b"".join(encode_request(0, "late", message, version))[_SIZE.size :]
            history.due[fault.arrives].append(LateFrame(frame, transactional_id))


def _number(transactional_id: str) -> str:
    """Its number in the workload: equal seeds give equal faults whatever the topic is called."""
    return transactional_id.rpartition("-")[2]


def _batches(produce: ProduceRequest) -> Iterator[tuple[int, BatchHeader]]:
    for topic in produce.topic_data:
        for partition in topic.partition_data:
            assert isinstance(partition.records, memoryview)
            yield partition.index, read_header(partition.records)


def _add_partitions(transactional_id: str, topic: str, request: Request, version: int) -> AddPartitionsToTxnRequest:
    batches = list(_batches(request.message(ProduceRequest)))
    producer = batches[0][1]
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[index for index, _ in batches])]
    if version <= NEWEST_ADD_PARTITIONS_OF_CLIENTS:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _errors(api: ApiKey, version: int, response: memoryview) -> Iterator[str]:
    match api:
        case ApiKey.PRODUCE:
            _, produced = parse_response(ProduceResponse, version, response)
            codes = [p.error_code for topic in produced.responses for p in topic.partition_responses]
        case ApiKey.END_TXN:
            codes = [parse_response(EndTxnResponse, version, response)[1].error_code]
        case ApiKey.ADD_OFFSETS_TO_TXN:
            codes = [parse_response(AddOffsetsToTxnResponse, version, response)[1].error_code]
        case ApiKey.TXN_OFFSET_COMMIT:
            _, committed = parse_response(TxnOffsetCommitResponse, version, response)
            codes = [p.error_code for offsets in committed.topics for p in offsets.partitions]
        case _:
            _, added = parse_response(AddPartitionsToTxnResponse, version, response)
            topics = [t for result in added.results_by_transaction for t in result.topic_results]
            results = [r for t in (*topics, *added.results_by_topic_v3_and_below) for r in t.results_by_partition]
            codes = [result.partition_error_code for result in results] or [added.error_code]
    yield from (ErrorCode(code).name for code in codes)
