"""The body of a ``.snapshot`` file: producer state up to an offset."""

from oncelog.protocol.schema import Message, array, int16, int32, int64, uint32


class ProducerEntry(Message):
    producer_id: int = int64("1", default=0)
    epoch: int = int16("1", default=0)
    last_sequence: int = int32("1", default=0)
    last_offset: int = int64("1", default=0)
    offset_delta: int = int32("1", default=0)
    timestamp: int = int64("1", default=0)
    coordinator_epoch: int = int32("1", default=0)
    current_txn_first_offset: int = int64("1", default=0)


class ProducerSnapshot(Message, versions="1", flexible="none"):
    crc: int = uint32("1", default=0)
    producer_entries: list[ProducerEntry] = array(ProducerEntry, "1", default_factory=list)
