"""Records of ``__consumer_offsets``, byte for byte as Apache Kafka 4.3's own classes write them."""

import pytest

from oncelog.coordinator.group.log_records import (
    GroupChanged,
    OffsetCommitted,
    decode_record,
    encode_group_metadata,
    encode_offset_commit,
)
from oncelog.coordinator.group.member import GroupImage, MemberImage
from oncelog.coordinator.group.offsets import CommittedOffset
from oncelog.protocol.records.record_batch import CorruptRecord, Record
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

TOPIC_ID = bytes(range(1, 17))
PARTITION = TopicPartition("t", 7)
OFFSET_KEY = "000100066772702dc3bc00017400000007"
GROUP_KEY = "000200066772702dc3bc"
OFFSET_V4 = "0004000000000000002a00000003026d0000018bcfe568000100100102030405060708090a0b0c0d0e0f10"
OFFSET_V4_WITHOUT_ID = "0004000000000000002a00000003026d0000018bcfe5680000"
OFFSET_V3 = "0003000000000000002a0000000300016d0000018bcfe56800"
OFFSET_V1 = "0001000000000000002a00016d0000018bcfe568000000018bcfe57b88"
OFFSET_V0 = "0000000000000000002a00016d0000018bcfe56800"
GROUP_V3 = (
    "00030008636f6e73756d657200000005000572616e67650003612d310000018bcfe56800000000020003612d31000161000163000a2f3132"
    "372e302e302e310000ea600000271000000002010200000001030003622d31ffff000164000a2f3132372e302e302e310000ea6000002710"
    "0000000000000000"
)
EMPTY_GROUP_V3 = "00030008636f6e73756d657200000006ffffffff0000018bcfe5680100000000"
GROUP_V0 = (
    "00000008636f6e73756d657200000005000572616e67650003612d31000000010003612d31000163000a2f3132372e302e302e3100002710"
    "00000002010200000001"
    "03"
)
NOW = 1_700_000_000_000


def committed(
    leader_epoch: int = 3, expire_timestamp_ms: int | None = None, topic_id: bytes = ZERO_UUID
) -> CommittedOffset:
    return CommittedOffset(42, leader_epoch, "m", NOW, expire_timestamp_ms, topic_id)


def member(member_id: str, instance: str | None, client: str, subscription: bytes, assignment: bytes) -> MemberImage:
    return MemberImage(
        member_id=member_id,
        group_instance_id=instance,
        client_id=client,
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=subscription,
        assignment=assignment,
    )


STABLE = GroupImage(
    protocol_type="consumer",
    generation=5,
    protocol_name="range",
    leader="a-1",
    state_timestamp_ms=NOW,
    members=(member("a-1", "a", "c", b"\1\2", b"\3"), member("b-1", None, "d", b"", b"")),
)
EMPTY = GroupImage(
    protocol_type="consumer",
    generation=6,
    protocol_name=None,
    leader=None,
    state_timestamp_ms=NOW + 1,
    members=(),
)


def record(key: str, value: str | None) -> Record:
    return Record(0, NOW, bytes.fromhex(key), None if value is None else bytes.fromhex(value), [])


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (committed(topic_id=TOPIC_ID), OFFSET_V4),
        (committed(), OFFSET_V4_WITHOUT_ID),
        (committed(leader_epoch=-1, expire_timestamp_ms=NOW + 5000), OFFSET_V1),
    ],
)
def test_offset_commits_are_written_as_kafka_writes_them(offset: CommittedOffset, value: str) -> None:
    encoded = encode_offset_commit("grp-ü", PARTITION, offset)
    assert encoded == (bytes.fromhex(OFFSET_KEY), bytes.fromhex(value))
    assert decode_record(record(OFFSET_KEY, value)) == OffsetCommitted("grp-ü", PARTITION, offset)


@pytest.mark.parametrize(("image", "value"), [(STABLE, GROUP_V3), (EMPTY, EMPTY_GROUP_V3)])
def test_groups_are_written_as_kafka_writes_them(image: GroupImage, value: str) -> None:
    assert encode_group_metadata("grp-ü", image) == (bytes.fromhex(GROUP_KEY), bytes.fromhex(value))
    assert decode_record(record(GROUP_KEY, value)) == GroupChanged("grp-ü", image)


def test_tombstones_have_no_value() -> None:
    assert encode_offset_commit("grp-ü", PARTITION, None) == (bytes.fromhex(OFFSET_KEY), None)
    assert encode_group_metadata("grp-ü", None) == (bytes.fromhex(GROUP_KEY), None)
    assert decode_record(record(OFFSET_KEY, None)) == OffsetCommitted("grp-ü", PARTITION, None)
    assert decode_record(record(GROUP_KEY, None)) == GroupChanged("grp-ü", None)


def test_values_of_older_kafkas_are_read() -> None:
    def offset(key_type: str, value: str) -> CommittedOffset | None:
        says = decode_record(record(key_type + OFFSET_KEY[4:], value))
        assert isinstance(says, OffsetCommitted)
        return says.committed

    assert offset("0001", OFFSET_V3) == committed()
    assert offset("0001", OFFSET_V0) == offset("0000", OFFSET_V0) == committed(leader_epoch=-1)
    assert offset("0000", OFFSET_V1) == committed(leader_epoch=-1, expire_timestamp_ms=NOW + 5000)
    says = decode_record(record(GROUP_KEY, GROUP_V0))
    assert isinstance(says, GroupChanged)
    assert says.image is not None
    assert says.image.state_timestamp_ms is None
    (old,) = says.image.members
    assert (old.rebalance_timeout_ms, old.session_timeout_ms, old.assignment) == (10_000, 10_000, b"\3")


def test_records_of_newer_group_protocols_are_named_by_their_type() -> None:
    assert decode_record(record("00050001", "0000")) == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("00", None),
        ("0001", None),
        ("0002ffff", None),
        (OFFSET_KEY, ""),
        (OFFSET_KEY, "0009" + OFFSET_V4[4:]),
        (OFFSET_KEY, OFFSET_V4[:20]),
        (GROUP_KEY, "0009"),
        (GROUP_KEY, GROUP_V3[:-60]),
    ],
)
def test_broken_records_are_corrupt(key: str, value: str | None) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(record(key, value))


def test_record_without_a_key_is_corrupt() -> None:
    with pytest.raises(CorruptRecord):
        decode_record(Record(0, NOW, None, b"", []))
