"""What a broker holds of a group and its topics: read past the proxy, from the logs themselves."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from oncelog.coordinator.group.log_records import OffsetCommitted, decode_record
from oncelog.protocol.records.record_batch import NewRecord, Record, build_batch, iter_batches, iter_records
from oncelog.protocol.topic_partition import TopicPartition
from tests.chaos.group_history import Commit
from tests.simulation import requests
from tests.simulation.simulated_broker import EPOCH_MS, SMALL
from tests.simulation.wire_client import WireClient

_OFFSETS_TOPIC = "__consumer_offsets"
_MAX_BYTES = 1 << 22


async def append(client: WireClient, partition: TopicPartition, values: Iterable[bytes]) -> None:
    """Produce one batch. Whether it is in the log is for the log to say."""
    batch = build_batch([NewRecord(requests.RECORD_TIMESTAMP, None, value) for value in values])
    await client.call(requests.produce(partition, bytearray(batch)), requests.PRODUCE_VERSION)


async def read_log(client: WireClient, partition: TopicPartition) -> list[Record]:
    """Every record of a partition, those of aborted transactions included."""
    found: list[Record] = []
    offset = 0
    while True:
        request = requests.fetch(partition, offset, read_committed=False, max_bytes=_MAX_BYTES)
        data = (await client.call(request, requests.FETCH_VERSION)).responses[0].partitions[0]
        assert data.error_code == 0, data.error_code
        records = data.records or b""
        for position, header in iter_batches(records):
            offset = header.next_offset
            if not header.is_control:
                found += iter_records(records, position, header, max_decompressed_bytes=_MAX_BYTES)
        if offset >= data.high_watermark:
            return found


async def read_commits(client: WireClient, group_id: str) -> dict[TopicPartition, list[Commit]]:
    """What was ever committed for a group, in the order of the log."""
    commits: dict[TopicPartition, list[Commit]] = defaultdict(list)
    for index in range(int(SMALL["offsets.topic.num.partitions"])):
        for says in _commits(await read_log(client, TopicPartition(_OFFSETS_TOPIC, index))):
            if says.group_id == group_id and says.committed is not None:
                at = (says.committed.commit_timestamp_ms - EPOCH_MS) / 1000
                commits[says.partition].append(Commit(says.committed.offset, at))
    return commits


def _commits(records: Iterable[Record]) -> Iterator[OffsetCommitted]:
    for record in records:
        says = decode_record(record)
        if isinstance(says, OffsetCommitted):
            yield says
