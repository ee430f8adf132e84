"""The small files of a data directory, byte for byte as in Kafka, and what is made of those that are broken."""

import random

import pytest

from oncelog.broker.storage.checkpoints import OffsetCheckpoint
from oncelog.broker.storage.clean_shutdown import NO_BROKER_EPOCH, read_mark, remove_mark, write_mark
from oncelog.broker.storage.log_files import delete_directory_name, offset_file, offset_of, parse_directory_name
from oncelog.broker.storage.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from oncelog.broker.storage.partition_metadata import decode_uuid, encode_uuid, read_topic_id, write_topic_id
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk

A, B = TopicPartition("a", 0), TopicPartition("b.c_d", 12)
UUID = bytes.fromhex("be686fe48bb94b688d9dcd5bd0bc06ba")


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/data")
    return disk


def test_offset_checkpoint_has_the_format_of_kafka(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(disk, "/data", "recovery-point-offset-checkpoint")
    assert checkpoint.read() is None
    checkpoint.write({A: 5, B: 2**40})
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n2\na 0 5\nb.c_d 12 1099511627776\n"
    assert checkpoint.read() == {A: 5, B: 2**40}
    disk.write_atomic("/data/recovery-point-offset-checkpoint", b"")
    assert checkpoint.read() == {}
    checkpoint.write({})
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize(
    "data",
    [
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na zero 5\n",
        b"\xff\xfe\x00",
        bytes(40),
        b"0\n1\na 0 5",
    ],
)
def test_broken_checkpoint_counts_as_missing(disk: SimDisk, data: bytes) -> None:
    disk.write_atomic("/data/c", data)
    assert OffsetCheckpoint(disk, "/data", "c").read() is None


async def test_write_on_the_loop_wins_over_an_older_one_off_the_loop(disk: SimDisk) -> None:
    checkpoint = OffsetCheckpoint(disk, "/data", "c")

    async def write_meanwhile() -> None:
        disk.delay = None
        checkpoint.write({A: 1})

    disk.delay = write_meanwhile
    await checkpoint.write_off_loop({A: 9})
    assert checkpoint.read() == {A: 1}
    assert disk.list_dir("/data") == ["c"]
    await checkpoint.write_off_loop({A: 9})
    assert checkpoint.read() == {A: 9}


def test_clean_shutdown_mark(disk: SimDisk) -> None:
    assert read_mark(disk, "/data") is None
    write_mark(disk, "/data", 77)
    assert disk.read("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":77}'
    assert read_mark(disk, "/data") == 77
    remove_mark(disk, "/data")
    disk.crash("power", random.Random(0))
    assert read_mark(disk, "/data") is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"version":0,"brokerEpoch":null}'])
def test_mark_of_an_older_broker(disk: SimDisk, data: bytes) -> None:
    disk.write_atomic("/data/.kafka_cleanshutdown", data)
    assert read_mark(disk, "/data") == NO_BROKER_EPOCH


def test_meta_properties_have_the_format_of_kafka(disk: SimDisk) -> None:
    assert read_meta_properties(disk, "/data") is None
    properties = MetaProperties(broker_id=3, cluster_id="MkU3OEVBNTcwNTJENDM2Qg==")
    write_meta_properties(disk, "/data", properties)
    text = disk.read("/data/meta.properties")
    assert text == b"#\nbroker.id=3\nversion=0\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\\=\\=\n"
    assert read_meta_properties(disk, "/data") == properties


def test_meta_properties_of_kafka(disk: SimDisk) -> None:
    disk.write_atomic(
        "/data/meta.properties",
        b"#\n#Thu Nov 20 10:00:00 UTC 2025\ncluster.id=abc\nversion=0\nbroker.id=1\ndirectory.id=x\\:y\n",
    )
    found = read_meta_properties(disk, "/data")
    assert found == MetaProperties(broker_id=1, cluster_id="abc", others={"directory.id": "x:y"})
    write_meta_properties(disk, "/data", found)
    assert read_meta_properties(disk, "/data") == found


def test_meta_properties_of_kraft_stay_kraft(disk: SimDisk) -> None:
    disk.write_atomic("/data/meta.properties", b"#\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=c\n")
    found = read_meta_properties(disk, "/data")
    assert found == MetaProperties(broker_id=1, cluster_id="c", version=1, others={"directory.id": "x"})
    write_meta_properties(disk, "/data", found)
    assert disk.read("/data/meta.properties") == b"#\ndirectory.id=x\nnode.id=1\nversion=1\ncluster.id=c\n"


@pytest.mark.parametrize("data", [b"version=2\nbroker.id=1\n", b"version=0\nbroker.id=one\n"])
def test_meta_properties_that_are_not_ours(disk: SimDisk, data: bytes) -> None:
    disk.write_atomic("/data/meta.properties", data)
    with pytest.raises(InvalidMetaProperties):
        read_meta_properties(disk, "/data")


def test_partition_metadata_has_the_format_of_kafka(disk: SimDisk) -> None:
    assert read_topic_id(disk, "/data") is None
    write_topic_id(disk, "/data", UUID, known=None)
    assert disk.read("/data/partition.metadata") == b"version: 0\ntopic_id: vmhv5Iu5S2iNnc1b0LwGug"
    assert read_topic_id(disk, "/data") == UUID


def test_uuids_are_url_safe() -> None:
    assert encode_uuid(b"\xff" * 16) == "_____________________w"
    assert decode_uuid("_____________________w") == b"\xff" * 16
    for text in ("", "short", "é" * 22):
        with pytest.raises(ValueError, match="is not a UUID"):
            decode_uuid(text)


@pytest.mark.parametrize("data", [b"", b"version: 1\ntopic_id: vmhv5Iu5S2iNnc1b0LwGug", b"version: 0\ntopic_id: vmh"])
def test_partition_metadata_that_cannot_be_read(disk: SimDisk, data: bytes) -> None:
    disk.write_atomic("/data/partition.metadata", data)
    assert read_topic_id(disk, "/data") is None


def test_file_names_hold_offsets_of_20_digits() -> None:
    assert offset_file("/d", 1234, ".log") == "/d/00000000000000001234.log"
    assert offset_of("00000000000000001234.log.swap") == 1234
    assert offset_of("leader-epoch-checkpoint") is None


def test_directory_names_hold_topic_and_partition() -> None:
    assert parse_directory_name("my-topic-10") == TopicPartition("my-topic", 10)
    for name in ("topic", "-1", "t-0.abc-delete", "t-0.abc-future", "t-x"):
        assert parse_directory_name(name) is None
    long_name = delete_directory_name(TopicPartition("t" * 249, 7), "0" * 32)
    assert len(long_name) == 255
    assert long_name.endswith(f"-7.{'0' * 32}-delete")
