"""Our files under Apache Kafka's own DumpLogSegments, and Apache Kafka's files under our storage."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.broker.storage.cleaner import LogCleaner
from oncelog.broker.storage.disk import LocalDisk
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, FetchedRecords, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.broker.tools.segment_text import dump_segment
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import NewRecord, build_batch, iter_batches, iter_records, read_header
from oncelog.protocol.topic_partition import TopicPartition
from tests.interop.broker_under_test import needs_one_broker
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import Batch
from tests.processes import KAFKA_4, BrokerProcess, KafkaProcess, OncelogProcess, class_path
from tests.unit.broker.batches import marker
from tests.unit.broker.storage.logs import log_host

pytestmark = needs_one_broker(
    "it starts brokers of its own, whose files it reads; replicas are compared by tests/faults"
)
SMALL_FILES = ["log.segment.bytes=16384", "log.index.interval.bytes=512", "num.partitions=2"]
COMPLAINTS = ("Mismatches", "mismatch", "out of order", "invalid bytes", "not be found", "Exception", "corrupt")
SENT = [f"value-{number}" for number in range(300)]


def workload(broker: BrokerProcess) -> None:
    """Compressed and plain data, commits and aborts, group offsets inside and outside transactions."""
    client = ConfluentKafka()
    client.create_topic(broker.address, "purchases", 2)
    client.create_topic(broker.address, "invoices", 2)
    for codec in client.compressions:
        client.produce(broker.address, "purchases", SENT, compression=codec)
    batches = [Batch([f"{number}-{n}" for n in range(5)], commit=number % 3 != 0) for number in range(60)]
    client.transact(broker.address, "purchases", "writer", batches)
    client.consume_transform_produce(broker.address, "purchases", "invoices", "billing", "billing-1", 40)
    client.consume_with_two_members(broker.address, "purchases", "readers", 200)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of our broker after the workload, a kill -9, a restart and a clean stop."""
    broker = OncelogProcess(tmp_path_factory.mktemp("ours"), SMALL_FILES)
    with broker:
        workload(broker)
        broker.kill()
        broker.start()
    return broker.data_directory


def dump(files: list[Path], *options: str) -> str:
    """Run Kafka's tool; fail on any complaint."""
    java = ["java", "-Xmx512m", "-cp", class_path(KAFKA_4), "org.apache.kafka.tools.DumpLogSegments"]
    names = ",".join(map(str, files))
    done = subprocess.run([*java, *options, "--files", names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [word for word in COMPLAINTS if word in done.stderr + done.stdout]
    assert not found, (found, (done.stderr + done.stdout)[-3000:])
    return done.stdout


def files_of(data: Path, topic: str, *suffixes: str) -> list[Path]:
    return sorted(path for folder in data.glob(f"{topic}-*") for path in folder.iterdir() if path.suffix in suffixes)


def test_dump_log_segments_reads_every_kind_of_file(stopped: Path) -> None:
    logs = files_of(stopped, "purchases", ".log")
    assert len(logs) > 2  # Two partitions, more than one segment each.
    out = dump(logs, "--deep-iteration", "--print-data-log")
    assert out.count("payload: value-") == len(SENT) * 5
    assert "endTxnMarker: COMMIT" in out
    assert "endTxnMarker: ABORT" in out
    indexes = files_of(stopped, "purchases", ".index", ".timeindex", ".txnindex", ".snapshot")
    kinds = {path.suffix for path in indexes if path.stat().st_size}
    assert kinds == {".index", ".timeindex", ".txnindex", ".snapshot"}
    out = dump(indexes)
    assert "lastStableOffset: " in out
    assert "producerId: " in out


def test_dump_log_segments_decodes_the_internal_topics(stopped: Path) -> None:
    transactions = files_of(stopped, "__transaction_state", ".log")
    out = dump([path for path in transactions if path.stat().st_size], "--transaction-log-decoder")
    assert '"transactionalId":"writer"' in out.replace(" ", "") or "transactional_id: writer" in out
    offsets = files_of(stopped, "__consumer_offsets", ".log")
    out = dump([path for path in offsets if path.stat().st_size], "--offsets-decoder")
    assert "billing" in out
    assert "readers" in out


def test_dump_log_segments_reads_what_the_cleaner_wrote(tmp_path: Path) -> None:
    """Delete horizons (KIP-534), emptied batches and batches with gaps, as Kafka's tool and ours understand them."""
    now_ms, retention_ms = 1_700_000_000_000, 1000
    directory = tmp_path / "cleaned-0"
    directory.mkdir()
    config = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=retention_ms)
    log = PartitionLog.open(
        log_host(LocalDisk(), lambda: now_ms), str(directory), TopicPartition("cleaned", 0), config, NotedLog()
    )
    for codec in Compression:
        records = [(b"own%d" % codec, b"1"), (b"shared", b"2"), (b"gone%d" % codec, None), (None, b"3")]
        data = build_batch([NewRecord(5, key, value) for key, value in records], compression=codec)
        append(log, data, AppendOrigin.COORDINATOR)
    for commit in (True, False):
        records = [(b"by transaction", b"1" if commit else b"2")]
        data = build_batch(
            [NewRecord(5, key, value) for key, value in records],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0 if commit else 1,
            is_transactional=True,
        )
        append(log, data, AppendOrigin.CLIENT)
        append(log, marker(7, commit=commit), AppendOrigin.COORDINATOR)
    append(log, marker(8, commit=True), AppendOrigin.COORDINATOR)
    log.roll()

    async def clean() -> None:
        await log.flush_closed_segments_off_loop()
        log.update_high_watermark(log.log_end_offset)
        assert await LogCleaner(LocalDisk(), wall_clock=lambda: now_ms).clean(log)

    asyncio.run(clean())
    log.close()
    segment = directory / f"{0:020}.log"
    lines = dump([segment], "--deep-iteration", "--print-data-log").splitlines()
    theirs = [line.split(" CreateTime")[0] for line in lines if line.startswith("baseOffset")]
    with segment.open("rb") as file:
        shown = list(dump_segment(file, segment.name, segment.stat().st_size, None))
    assert [line.split(" CreateTime")[0] for line in shown] == theirs
    with_horizon = [line for line in theirs if f"deleteHorizonMs: OptionalLong[{now_ms + retention_ms}]" in line]
    assert len(with_horizon) == len(Compression) + 1, "each batch with a tombstone, and the marker without data"
    assert sum("count: 0 " in line for line in theirs) == 1, "the producer's last sequence, of an aborted transaction"
    records_shown = [line for line in lines if line.startswith("|")]
    assert all(" CreateTime: 5 " in line for line in records_shown if "endTxnMarker" not in line)
    dump(files_of(tmp_path, "cleaned", ".index", ".timeindex", ".txnindex"))


def append(log: PartitionLog, data: bytearray, origin: AppendOrigin) -> None:
    info = log.append_as_leader(data, read_header(data), 0, origin)
    assert isinstance(info, AppendInfo), info


@pytest.fixture(scope="module")
def written_by_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[int, list[str]]]]:
    broker = KafkaProcess(tmp_path_factory.mktemp("theirs"), ["log.index.interval.bytes=512", "num.partitions=2"])
    with broker:
        workload(broker)
        client = ConfluentKafka()
        total = len(SENT) * 5 + 60 * 5
        values: dict[int, list[str]] = {0: [], 1: []}
        for record in client.consume(broker.address, "purchases", total):
            values[record.partition].append(record.value)
    return broker.data_directory, values


def read_values(log: PartitionLog) -> Iterator[str]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, 1 << 20, upper_offset=log.log_end_offset)
        assert isinstance(fetched, FetchedRecords)
        for position, header in iter_batches(fetched.records):
            offset = header.next_offset
            if not header.is_control:
                for record in iter_records(fetched.records, position, header, max_decompressed_bytes=1 << 24):
                    assert record.value is not None
                    yield record.value.decode()


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_data_directory_written_by_kafka_is_readable(
    written_by_kafka: tuple[Path, dict[int, list[str]]], clean: bool, open_log: Callable[..., PartitionLog]
) -> None:
    data, values = written_by_kafka
    for partition in (0, 1):
        log = open_log(data, TopicPartition("purchases", partition), clean)
        assert list(read_values(log)) == values[partition]
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == log.log_end_offset
        aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        assert len(aborted) > 0
        log.close()


@pytest.fixture
def open_log(tmp_path: Path) -> Callable[..., PartitionLog]:
    """Open a copy of a partition's directory, since opening may rebuild indexes."""

    def open_copy(data: Path, partition: TopicPartition, clean: bool) -> PartitionLog:
        directory = tmp_path / str(partition)
        subprocess.run(["cp", "-r", str(data / str(partition)), str(directory)], check=True)
        config = LogConfig(segment_bytes=16384, index_interval_bytes=512)
        return PartitionLog.open(
            log_host(LocalDisk(), lambda: 1_800_000_000_000),
            str(directory),
            partition,
            config,
            NotedLog(clean_shutdown=clean),
        )

    return open_copy
