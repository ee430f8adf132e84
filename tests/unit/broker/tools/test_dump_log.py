"""What ``dump-log`` prints of files that the storage and the coordinators wrote, and of broken ones."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.broker.storage.disk import LocalDisk
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.broker.tools.dump_log import command
from oncelog.coordinator.group.log_records import encode_offset_commit
from oncelog.coordinator.group.offsets import CommittedOffset
from oncelog.coordinator.transaction.log_records import build_record_batch, build_tombstones
from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import (
    NewRecord,
    assemble_batch,
    build_batch,
    patch_offset_and_epoch,
    read_header,
)
from oncelog.protocol.topic_partition import TopicPartition
from tests.stored_batch import stored
from tests.unit.broker.storage.logs import log_host

NOW = 1_700_000_000_000
PRODUCER, EPOCH = 4000, 3
NAME = "00000000000000000000"


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def lines(*arguments: object, exit_code: int = 0) -> list[str]:
    result = dump(*arguments)
    assert result.exit_code == exit_code, result.output
    return result.output.splitlines()


def append(log: PartitionLog, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    info = log.append_as_leader(batch, read_header(batch), 5, origin)
    assert isinstance(info, AppendInfo), info


def transactional(sequence: int, *values: str) -> bytearray:
    records = [NewRecord(NOW, b"key", value.encode(), (("trace", b"1"),)) for value in values]
    return build_batch(
        records, producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=sequence, is_transactional=True
    )


def marker(commit: bool) -> bytearray:
    return build_end_txn_marker(
        producer_id=PRODUCER, producer_epoch=EPOCH, commit=commit, coordinator_epoch=7, timestamp=NOW
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition with an aborted and an open transaction, an index entry a batch, and a snapshot."""
    path = tmp_path / "orders-0"
    path.mkdir()
    config = LogConfig(index_interval_bytes=1)
    log = PartitionLog.open(
        log_host(LocalDisk(), lambda: NOW), str(path), TopicPartition("orders", 0), config, NotedLog()
    )
    append(log, build_batch([NewRecord(NOW, None, b"plain"), NewRecord(NOW, b"k", None)]))
    append(log, transactional(0, "a", "b"))
    append(log, marker(commit=False), AppendOrigin.COORDINATOR)
    append(log, transactional(2, "c"))
    log.close()
    return path


def test_dump_of_batches_shows_their_headers(directory: Path) -> None:
    shown = lines(directory / f"{NAME}.log")
    assert shown[:2] == [f"Dumping {directory / NAME}.log", "Log starting offset: 0"]
    assert len(shown) == 2 + 4
    crc = read_header((directory / f"{NAME}.log").read_bytes()).crc
    assert shown[2] == (
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 5 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {NOW} size: 81 magic: 2 compresscodec: none crc: {crc} isvalid: true"
    )
    assert "baseSequence: 0 lastSequence: 1 producerId: 4000 producerEpoch: 3" in shown[3]
    assert "isTransactional: true isControl: true" in shown[4]


def test_records_and_markers(directory: Path) -> None:
    shown = [line for line in lines("--print-data-log", directory / f"{NAME}.log") if line.startswith("|")]
    assert shown == [
        f"| offset: 0 CreateTime: {NOW} keySize: -1 valueSize: 5 sequence: -1 headerKeys: [] payload: plain",
        f"| offset: 1 CreateTime: {NOW} keySize: 1 valueSize: -1 sequence: -1 headerKeys: [] key: k payload: null",
        f"| offset: 2 CreateTime: {NOW} keySize: 3 valueSize: 1 sequence: 0 headerKeys: [trace] key: key payload: a",
        f"| offset: 3 CreateTime: {NOW} keySize: 3 valueSize: 1 sequence: 1 headerKeys: [trace] key: key payload: b",
        f"| offset: 4 CreateTime: {NOW} keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: ABORT coordinatorEpoch: 7",
        f"| offset: 5 CreateTime: {NOW} keySize: 3 valueSize: 1 sequence: 2 headerKeys: [trace] key: key payload: c",
    ]


def test_indexes_snapshots_and_epochs(directory: Path) -> None:
    positions = [line.split("position: ")[1].split()[0] for line in lines(directory / f"{NAME}.log")[2:]]
    index = lines(directory / f"{NAME}.index")[1:]
    assert index
    assert set(index) <= {
        f"offset: {offset} position: {position}" for offset, position in zip((1, 3, 4, 5), positions, strict=True)
    }
    assert lines(directory / f"{NAME}.timeindex")[1:] == [f"timestamp: {NOW} offset: 1"]
    assert lines(directory / f"{NAME}.txnindex")[1:] == [
        "version: 0 producerId: 4000 firstOffset: 2 lastOffset: 4 lastStableOffset: 5"
    ]
    (snapshot,) = directory.glob("*.snapshot")
    assert lines(snapshot)[1:] == [
        f"producerId: 4000 producerEpoch: 3 coordinatorEpoch: 7 currentTxnFirstOffset: 5 lastTimestamp: {NOW} "
        f"firstSequence: 2 lastSequence: 2 lastOffset: 5 offsetDelta: 0 timestamp: {NOW}"
    ]
    assert lines(directory / "leader-epoch-checkpoint")[1:] == ["epoch: 5 startOffset: 0"]


def test_data_directory_lists_its_partitions_with_internal_topics_last(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-0", "__transaction_state-1", "zoo-0", "Apples-0"):
        partition = tmp_path / "data" / name
        partition.mkdir(parents=True)
        (partition / f"{NAME}.log").touch()
    said = dump(tmp_path / "data").output
    assert "or files: Apples-0, zoo-0, __consumer_offsets-0, __transaction_state-1\n" in said


def test_whole_directory_is_without_complaint(directory: Path) -> None:
    assert dump(*directory.iterdir()).exit_code == 0


def write_segment(tmp_path: Path, *batches: bytearray) -> Path:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(b"".join(batches))
    return path


def payloads(shown: list[str]) -> list[tuple[object, object]]:
    found = []
    for line in shown:
        if line.startswith("|"):
            key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
            found.append((json.loads(key), json.loads(payload)))
    return found


@pytest.mark.parametrize("version", [0, 1])
def test_dump_of_the_transaction_log_shows_its_values(tmp_path: Path, version: int) -> None:
    metadata = TransactionMetadata(
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("orders", 1)}),
        start_ms=NOW,
        last_update_ms=NOW + 1,
        client_transaction_version=2,
        cause="a test",
    )
    tombstone = build_tombstones(["old"], NOW)
    patch_offset_and_epoch(tombstone, 0, base_offset=1, partition_leader_epoch=0)
    record = build_record_batch("billing", metadata, NOW, value_version=version)
    path = write_segment(tmp_path, record, tombstone)
    tagged = {
        "previousProducerId": -1,
        "nextProducerId": -1,
        "clientTransactionVersion": 2,
        "nextProducerEpoch": -1,
        "cause": "a test",
    }
    assert payloads(lines("--transaction-log-decoder", path)) == [
        (
            {"type": "0", "data": {"transactionalId": "billing"}},
            {
                "version": str(version),
                "data": {
                    "producerId": PRODUCER,
                    "producerEpoch": EPOCH,
                    "transactionTimeoutMs": 60_000,
                    "transactionStatus": 1,
                    "transactionPartitions": [{"topic": "orders", "partitionIds": [1]}],
                    "transactionLastUpdateTimestampMs": NOW + 1,
                    "transactionStartTimestampMs": NOW,
                    **(tagged if version else {}),
                },
            },
        ),
        ({"type": "0", "data": {"transactionalId": "old"}}, None),
    ]


def test_dump_of_consumer_offsets_shows_its_values(tmp_path: Path) -> None:
    orders = TopicPartition("orders", 2)
    committed = CommittedOffset(offset=42, leader_epoch=1, metadata="here", commit_timestamp_ms=NOW)
    entries = [encode_offset_commit("billing", orders, committed), encode_offset_commit("billing", orders, None)]
    path = write_segment(tmp_path, build_batch([NewRecord(NOW, key, value) for key, value in entries]))
    key = {"type": "1", "data": {"group": "billing", "topic": "orders", "partition": 2}}
    (first_key, first), (second_key, second) = payloads(lines("--offsets-decoder", path))
    assert first_key == second_key == key
    assert isinstance(first, dict)
    assert first["version"] == "4"
    assert first["data"] | {"topicId": ""} == {
        "offset": 42,
        "leaderEpoch": 1,
        "metadata": "here",
        "commitTimestamp": NOW,
        "topicId": "",
    }
    assert second is None


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        (b"\0\x63rest", b"v", 'key: {"type":"99","data":"unknown"} payload: v'),
        (b"\0\0\0\x01a", b"\0\x63", 'key: {"type":"0","data":{"transactionalId":"a"}} payload: {"version":"99"'),
        (b"\0\0\0\x09a", b"v", "key: <not decodable: "),
        (b"\0", b"v", "key: <not decodable: "),
    ],
)
def test_internal_records_that_are_not_known(tmp_path: Path, key: bytes, value: bytes, shown: str) -> None:
    path = write_segment(tmp_path, build_batch([NewRecord(NOW, key, value)]))
    assert shown in lines("--transaction-log-decoder", path)[-1]


def test_batch_whose_bytes_were_changed(directory: Path) -> None:
    path = directory / f"{NAME}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    shown = lines("--print-data-log", path, exit_code=1)
    assert [line.split("isvalid: ")[1] for line in shown if "isvalid" in line] == ["false", "true", "true", "true"]
    assert not any(line.startswith("| offset: 0") for line in shown), "the records of a changed batch are not shown"


def test_dump_of_a_torn_tail_ends_with_an_error(directory: Path) -> None:
    path = directory / f"{NAME}.log"
    path.write_bytes(path.read_bytes()[:-10])
    last = (transactional(2, "c"))[:-10]
    assert lines(path, exit_code=1)[-1] == f"Found {len(last)} invalid bytes at the end of {NAME}.log"


def test_file_that_is_no_log(tmp_path: Path) -> None:
    path = write_segment(tmp_path, bytearray(b"this is not a record batch, however long one looks at it" * 2))
    shown = lines(path, exit_code=1)
    assert "a batch of format version" in shown[2]
    assert shown[3] == f"Found 112 invalid bytes at the end of {NAME}.log"


def test_batch_that_is_broken_inside(tmp_path: Path) -> None:
    broken = build_batch([NewRecord(NOW, None, b"value")])
    records = bytearray(broken[61:])
    records[0] += 2
    good = stored(build_batch([NewRecord(NOW, None, b"good")]), base_offset=1)
    path = write_segment(tmp_path, assemble_batch(read_header(broken), records), good)
    shown = lines("--print-data-log", path, exit_code=1)
    assert "isvalid: true" in shown[2]
    assert "in the batch at offset 0" in shown[3]
    assert "payload: good" in shown[5]


def test_offsets_that_do_not_ascend(tmp_path: Path) -> None:
    path = write_segment(
        tmp_path, *(stored(build_batch([NewRecord(NOW, None, b"v")]), base_offset=9) for _ in range(2))
    )
    assert f"{NAME}.log: offset 9 at position 69 after 9" in "\n".join(lines(path, exit_code=1))


def test_index_that_does_not_match_its_log(directory: Path) -> None:
    path = directory / f"{NAME}.index"
    data = bytearray(path.read_bytes())
    data[3] += 1
    path.write_bytes(data)
    assert any("log offset" in line for line in lines(path, exit_code=1))
    (directory / f"{NAME}.log").unlink()
    assert not any("log offset" in line for line in dump(path).output.splitlines()), "nothing to compare with"


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_index_with_half_an_entry(directory: Path, suffix: str) -> None:
    path = directory / f"{NAME}.{suffix}"
    path.write_bytes(path.read_bytes() + b"\0\0\0")
    assert "3 bytes after the last entry" in "".join(lines(path, exit_code=1))


def test_dump_of_preallocated_indexes_leaves_zeros_out(tmp_path: Path) -> None:
    index = tmp_path / f"{NAME}.index"
    index.write_bytes(b"\0\0\0\x05\0\0\0\x63" + bytes(80))
    assert lines(index)[1:] == ["offset: 5 position: 99"]
    time_index = tmp_path / f"{NAME}.timeindex"
    time_index.write_bytes(NOW.to_bytes(8, "big") + b"\0\0\0\x05" + bytes(120))
    assert lines(time_index)[1:] == [f"timestamp: {NOW} offset: 5"]


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        (f"{NAME}.snapshot", b"\0\1\0\0\0\0\0\0\0\0", "the CRC does not match"),
        (f"{NAME}.snapshot", b"\0\2\0\0\0\0\0\0\0\0", "version 2"),
        (f"{NAME}.snapshot", b"\0", f"{NAME}.snapshot"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "not a checkpoint"),
        (f"{NAME}.bin", b"", "not known"),
        ("notes.log", b"", "is not named as a file of a log is"),
    ],
)
def test_other_files_that_are_wrong(tmp_path: Path, name: str, data: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert complaint in "".join(lines(path, exit_code=1))


def test_decoders_exclude_each_other(directory: Path) -> None:
    assert dump("--offsets-decoder", "--transaction-log-decoder", directory / f"{NAME}.log").exit_code == 2


def test_records_are_shown_without_control_and_format_characters(tmp_path: Path) -> None:
    """A record cannot forge a line of the dump, nor turn one around."""
    evil = "\x1b]0;owned\x07 \x9b2J \u202e \u2028 \n| offset: 7"
    path = write_segment(tmp_path, build_batch([NewRecord(NOW, evil.encode(), evil.encode(), ((evil, b""),))]))
    shown = lines("--print-data-log", path)
    assert not set("".join(shown)) & set("\x1b\x07\x9b\u202e\u2028")
    (line,) = (line for line in shown if "payload" in line)
    assert line.count("\\x1b]0;owned\\x07 \\x9b2J \\u202e \\u2028 \\n| offset: 7") == 3


def test_directory_stands_for_its_segments_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for base_offset in (10_000_000, 0, 2_000):
        (partition / f"{base_offset:020}.log").touch()
        (partition / f"{base_offset:020}.index").touch()
    (partition / "notes.log").touch()
    dumped = [line for line in lines(partition) if line.startswith("Dumping")]
    assert dumped == [f"Dumping {partition}/{base_offset:020}.log" for base_offset in (0, 2_000, 10_000_000)]


def test_directory_without_segments_is_refused_with_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    assert "name the directory of a partition, or files" in "\n".join(lines(tmp_path, exit_code=2))
    (tmp_path / "orders-0" / f"{0:020}.log").touch()
    assert "name one of those in it, or files: orders-0" in "\n".join(lines(tmp_path, exit_code=2))
