"""What readers of committed records find of each key of a log, however often that was compacted."""

from typing import Final, TypeAlias

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.records.control_records import parse_end_txn_marker
from oncelog.protocol.records.record_batch import iter_batches, iter_records

_LONGEST_BATCH: Final = 1 << 20
_Latest: TypeAlias = dict[bytes, tuple[int, bytes | None]]


def latest_of(log: PartitionLog) -> dict[bytes, tuple[int, bytes]]:
    """Return offset and value of the last record of every key, without tombstones and aborted records.

    Compaction removes aborted records, at each replica in its own time, and they replace no earlier record. Those of a
    transaction that has not ended count: compaction does not reach them.
    """
    found: _Latest = {}
    undecided: dict[int, _Latest] = {}
    for segment in log.segments:
        data = memoryview(segment.file.read_at(segment.size, 0))
        for position, header in iter_batches(data):
            if header.is_control:
                marker = parse_end_txn_marker(data, position, header)
                ended = undecided.pop(header.producer_id, {})
                if marker is not None and marker.commit:
                    _merge(found, ended)
                continue
            records = iter_records(data, position, header, max_decompressed_bytes=_LONGEST_BATCH)
            taken: _Latest = {record.key: (record.offset, record.value) for record in records if record.key is not None}
            _merge(undecided.setdefault(header.producer_id, {}) if header.is_transactional else found, taken)
    for ended in undecided.values():
        _merge(found, ended)
    return {key: (offset, value) for key, (offset, value) in found.items() if value is not None}


def _merge(found: _Latest, others: _Latest) -> None:
    """Take over what is later."""
    for key, (offset, value) in others.items():
        if offset > found.get(key, (-1, None))[0]:
            found[key] = offset, value
