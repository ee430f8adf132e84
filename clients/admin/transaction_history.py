"""The history of a transactional id: its records in ``__transaction_state``, oldest first.

Each record is the whole state of an id after one step. Its partition is fetched as any other, and found by the
hash that all brokers and clients share. Compaction leaves only the newest record of each id in the older segments, so
the history begins there, and may have gaps.
"""

from dataclasses import dataclass

from oncelog.clients.admin.offsets import EARLIEST, LATEST, list_offsets
from oncelog.clients.admin.transaction_records import HistoryRecord, encoded_key, read_record
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, Refusal, error_code
from oncelog.clients.log_reader import LogReader
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHistory:
    """The records of an id that the log still has, of a partition from offset ``begin`` to before ``end``."""

    transactional_id: str
    topic_partition: TopicPartition
    begin: int
    end: int
    records_left: int
    records: tuple[HistoryRecord, ...]


async def read_transaction_history(cluster: Cluster, transactional_id: str) -> TransactionHistory:
    """Read the partition of an id from its start to its current end. Raises ``BrokerRefused``, ``BadResponse``."""
    topic = (await cluster.topics([TRANSACTION_STATE_TOPIC_NAME]))[TRANSACTION_STATE_TOPIC_NAME]
    if topic.error_code:
        raise BrokerRefused(f"topic {TRANSACTION_STATE_TOPIC_NAME}", Refusal(error=error_code(topic.error_code)))
    home = TopicPartition(TRANSACTION_STATE_TOPIC_NAME, partition_for(transactional_id, len(topic.partitions)))
    begin, end = await _offset(cluster, home, EARLIEST), await _offset(cluster, home, LATEST)
    reader = LogReader(cluster, {home: begin}, read_committed=False)
    key = encoded_key(transactional_id)
    records_left, records = 0, []
    while reader.positions[home] < end:
        for fetched in await reader.poll():
            records_left += len(fetched.records)
            records += [read_record(record) for record in fetched.records if record.key == key]
        for topic_partition, refused in reader.failed.items():
            raise refused.as_error(str(topic_partition))
    return TransactionHistory(
        transactional_id=transactional_id,
        topic_partition=home,
        begin=begin,
        end=end,
        records_left=records_left,
        records=tuple(records),
    )


async def _offset(cluster: Cluster, topic_partition: TopicPartition, timestamp: int) -> int:
    results = await list_offsets(cluster, {topic_partition: timestamp})
    return results.require_all()[topic_partition].offset or 0
