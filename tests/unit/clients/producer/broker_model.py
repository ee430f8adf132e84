"""What a partition leader does with the batches of idempotent producers, in as few lines as it takes.

Kafka's rules (``ProducerAppendInfo``, ``ProducerStateEntry``): an older epoch is fenced; a new one begins at sequence
0; within one, the next sequence is appended, one of the last five batches is a retry, anything else is out of order.
"""

from collections import deque
from dataclasses import dataclass, field

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.records.record_batch import BatchHeader, increment_sequence, iter_records, read_header

REMEMBERED_BATCHES = 5


@dataclass
class ProducerEntry:
    """What is remembered of one producer."""

    epoch: int
    last_sequence: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    """(first sequence, last sequence, base offset)"""


class PartitionModel:
    """One partition: ``log`` holds the values in the order of their offsets."""

    def __init__(self, *, largest_batch: int = 1_000_000) -> None:
        self.log: list[bytes] = []
        self.largest_batch = largest_batch
        self.producers: dict[int, ProducerEntry] = {}

    def produce(self, batch: bytes) -> PartitionProduceResponse:
        header = read_header(batch)
        if len(batch) > self.largest_batch:
            return refusal(ErrorCode.MESSAGE_TOO_LARGE)
        if not header.has_producer_id:
            return self._append(batch, header)
        known = self.producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
        if known is not None and header.producer_epoch == known.epoch:
            for first, last, offset in known.batches:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return PartitionProduceResponse(base_offset=offset)
            if header.base_sequence != increment_sequence(known.last_sequence, 1):
                return refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif known is not None and header.base_sequence != 0:
            return refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return self._append(batch, header)

    def _append(self, batch: bytes, header: BatchHeader) -> PartitionProduceResponse:
        offset = len(self.log)
        records = iter_records(batch, 0, header, max_decompressed_bytes=1_000_000)
        self.log += [record.value or b"" for record in records]
        if header.has_producer_id:
            entry = self.producers.get(header.producer_id)
            if entry is None or entry.epoch != header.producer_epoch:
                entry = self.producers[header.producer_id] = ProducerEntry(header.producer_epoch, -1)
            entry.last_sequence = header.last_sequence
            entry.batches.append((header.base_sequence, header.last_sequence, offset))
        return PartitionProduceResponse(base_offset=offset)


def refusal(error: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(error_code=error, base_offset=-1)
