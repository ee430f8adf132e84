"""Records of ``__consumer_offsets``, as Apache Kafka writes them, so that its tools and brokers read ours.

A key is the record's type as an int16 and then the fields of that type. A value is its version as an int16 and then the
fields of that version; a null value is a tombstone::

    key type  key                        value                 versions read, written
    0, 1      group, topic, partition    OffsetCommitValue     0-4, 4 (1 if the commit brought its own retention)
    2         group                      GroupMetadataValue    0-4, 3

Types 3 and above belong to Kafka's newer group protocols. A log that holds them was written by another broker; they are
passed over, like any type that this version does not know.
"""

import struct
from typing import Final, NamedTuple, TypeAlias

from oncelog.coordinator.group.member import GroupImage, MemberImage
from oncelog.coordinator.group.offsets import CommittedOffset
from oncelog.protocol.compiler import decoder, encoder
from oncelog.protocol.internal.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.records.record_batch import CorruptRecord, Record
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

_INT16: Final = struct.Struct(">h")
_OFFSET_COMMIT_TYPES: Final = (0, 1)
_OFFSET_COMMIT_TYPE: Final = 1
_GROUP_METADATA_TYPE: Final = 2
_KEY_VERSION: Final = 0
_GROUP_METADATA_VERSION: Final = 3
_OFFSET_COMMIT_VERSION: Final = 4
_OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
_UNDEFINED: Final = -1


class OffsetCommitted(NamedTuple):
    """An offset commit record; a tombstone has no ``committed``."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None


class GroupChanged(NamedTuple):
    """A group metadata record; a tombstone has no ``image``."""

    group_id: str
    image: GroupImage | None


GroupRecord: TypeAlias = OffsetCommitted | GroupChanged
EncodedRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""


def encode_offset_commit(
    group_id: str, partition: TopicPartition, committed: CommittedOffset | None
) -> tuple[bytes, bytes | None]:
    """Return key and value of an offset commit, or of its tombstone."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    encoded_key = _encode(_OFFSET_COMMIT_TYPE, _KEY_VERSION, key)
    if committed is None:
        return encoded_key, None
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=_UNDEFINED if committed.expire_timestamp_ms is None else committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    if committed.expire_timestamp_ms is None:
        version = _OFFSET_COMMIT_VERSION
    else:
        version = _OFFSET_COMMIT_VERSION_WITH_EXPIRY
    return encoded_key, _encode(version, version, value)


def encode_group_metadata(group_id: str, image: GroupImage | None) -> tuple[bytes, bytes | None]:
    """Return key and value of a group's image, or of its tombstone."""
    encoded_key = _encode(_GROUP_METADATA_TYPE, _KEY_VERSION, GroupMetadataKey(group=group_id))
    if image is None:
        return encoded_key, None
    value = GroupMetadataValue(
        protocol_type=image.protocol_type or "",
        generation=image.generation,
        protocol=image.protocol_name,
        leader=image.leader,
        current_state_timestamp=_UNDEFINED if image.state_timestamp_ms is None else image.state_timestamp_ms,
        members=[_member_metadata(member) for member in image.members],
    )
    return encoded_key, _encode(_GROUP_METADATA_VERSION, _GROUP_METADATA_VERSION, value)


def decode_record(record: Record) -> GroupRecord | int:
    """Return the content of a record, or its key type if that is none of ours. Raises CorruptRecord."""
    if record.key is None or len(record.key) < _INT16.size:
        raise CorruptRecord(f"no key at offset {record.offset}")
    key_type: int = _INT16.unpack_from(record.key)[0]
    try:
        if key_type in _OFFSET_COMMIT_TYPES:
            return _decode_offset_commit(record.key, record.value)
        if key_type == _GROUP_METADATA_TYPE:
            return _decode_group_metadata(record.key, record.value)
    except (DecodeError, ValueError) as error:
        raise CorruptRecord(f"the group record at offset {record.offset}: {error}") from error
    return key_type


def _decode_offset_commit(key: bytes, value: bytes | None) -> OffsetCommitted:
    of, _ = decoder(OffsetCommitKey, _KEY_VERSION)(key, _INT16.size)
    partition = TopicPartition(of.topic, of.partition)
    if value is None:
        return OffsetCommitted(of.group, partition, None)
    says, _ = decoder(OffsetCommitValue, _version(value))(value, _INT16.size)
    committed = CommittedOffset(
        offset=says.offset,
        leader_epoch=says.leader_epoch,
        metadata=says.metadata,
        commit_timestamp_ms=says.commit_timestamp,
        expire_timestamp_ms=None if says.expire_timestamp == _UNDEFINED else says.expire_timestamp,
        topic_id=says.topic_id,
    )
    return OffsetCommitted(of.group, partition, committed)


def _decode_group_metadata(key: bytes, value: bytes | None) -> GroupChanged:
    of, _ = decoder(GroupMetadataKey, _KEY_VERSION)(key, _INT16.size)
    if value is None:
        return GroupChanged(of.group, None)
    says, _ = decoder(GroupMetadataValue, _version(value))(value, _INT16.size)
    image = GroupImage(
        protocol_type=says.protocol_type or None,
        generation=says.generation,
        protocol_name=says.protocol,
        leader=says.leader,
        state_timestamp_ms=None if says.current_state_timestamp == _UNDEFINED else says.current_state_timestamp,
        members=tuple(_member_image(member) for member in says.members),
    )
    return GroupChanged(of.group, image)


def _member_metadata(member: MemberImage) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _member_image(member: MemberMetadata) -> MemberImage:
    """Return the image of a member; version 0 of the value has one time-out for both purposes."""
    has_own_timeout = member.rebalance_timeout != _UNDEFINED
    return MemberImage(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout if has_own_timeout else member.session_timeout,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _version(value: bytes) -> int:
    if len(value) < _INT16.size:
        raise DecodeError("a value without a version")
    version: int = _INT16.unpack_from(value)[0]
    return version


def _encode(prefix: int, version: int, message: Message) -> bytes:
    return b"".join(encoder(type(message), version)(message, bytearray(_INT16.pack(prefix))))
