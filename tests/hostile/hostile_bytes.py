"""Requests and batches that are small to send and much to work on; each is a function of its size.

They are put together byte by byte: an encoder of ours would take longer for them than a broker may.
"""

import random
import struct
from typing import Final

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.primitives import encode_uvarint
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.record_batch import NewRecord, assemble_batch, build_batch, read_header
from oncelog.protocol.records.varint import encode_varint
from oncelog.protocol.schema import Message
from tests.simulation.requests import RECORD_TIMESTAMP

_REQUEST_HEADER: Final = struct.Struct(">hhi")
_CLIENT_ID: Final = b"\0\x07hostile"
_HEADER_SIZE: Final = 61


def frame(api_key: ApiKey, version: int, body: bytes, header_tags: bytes = b"") -> bytes:
    """A frame with its size; ``header_tags`` is the tagged fields of a flexible version's header."""
    content = _REQUEST_HEADER.pack(api_key, version, 1) + _CLIENT_ID + header_tags + body
    return struct.pack(">i", len(content)) + content


def request_frame(request: Message, version: int, client_id: str = "hostile") -> bytes:
    return b"".join(encode_request(1, client_id, request, version))


# Requests of many elements


def describe_empty_groups(count: int) -> bytes:
    """DescribeGroups 5 of ``count`` empty ids, one byte each."""
    return frame(ApiKey.DESCRIBE_GROUPS, 5, encode_uvarint(count + 1) + b"\x01" * count + b"\0\0", b"\0")


def metadata_of_empty_names(count: int) -> bytes:
    """Metadata 4 of ``count`` empty names, two bytes each."""
    return frame(ApiKey.METADATA, 4, struct.pack(">i", count) + b"\0\0" * count + b"\0")


def tagged_header(size: int) -> bytes:
    """ApiVersions 3 with about ``size`` bytes of empty tagged fields in its header, in ascending order."""
    tags, count, length = [], 0, 0
    while length < size:
        tag = encode_uvarint(count) + b"\0"
        tags.append(tag)
        length += len(tag)
        count += 1
    body = b"\x02a\x02a\0"
    return frame(ApiKey.API_VERSIONS, 3, body, encode_uvarint(count) + b"".join(tags))


def produce_tiny_batches(topic: str, count: int, *, same_partition: bool) -> bytes:
    """Produce 3 of ``count`` batches of one small record, each for a partition that is there or is not."""
    batch = bytes(build_batch([NewRecord(RECORD_TIMESTAMP, b"k", b"")]))
    sized = struct.pack(">i", len(batch)) + batch
    indexes = (0 if same_partition else index for index in range(count))
    partitions = b"".join(struct.pack(">i", index) + sized for index in indexes)
    name = topic.encode()
    head = b"\xff\xff" + struct.pack(">hii", 1, 10_000, 1) + struct.pack(">h", len(name)) + name
    return frame(ApiKey.PRODUCE, 3, head + struct.pack(">i", count) + partitions)


def pipelined_api_versions(count: int) -> bytes:
    return request_frame(ApiVersionsRequest(), 3) * count


def fetch_session_of_unknown(count: int) -> bytes:
    """Fetch 12 that opens a session of ``count`` partitions of a topic that does not exist."""
    partitions = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(count)]
    topics = [FetchTopic(topic="unknown", partitions=partitions)]
    return request_frame(FetchRequest(session_epoch=0, topics=topics, max_wait_ms=0), 12)


def long_poll_and_fetches(topic: str, end: int, fetches: int) -> bytes:
    """A fetch that waits at the end of the log for ten seconds, and behind it fetches of all that there is."""
    return _fetch(topic, end, 10_000, 1) + _fetch(topic, 0, 0, 2**31 - 1) * fetches


def _fetch(topic: str, offset: int, max_wait_ms: int, max_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**31 - 1)
    requested = [FetchTopic(topic=topic, partitions=[partition])]
    return request_frame(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=requested), 11)


def join_group(group: str, instance: str | None, client_id: str = "hostile", reason: str | None = None) -> bytes:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0")]
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=500,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=protocols,
        reason=reason,
    )
    return request_frame(request, 8, client_id)


def long_requests(count: int) -> list[bytes]:
    """A request of ``count`` elements for each of some APIs, none of which exists at the broker."""
    names = [f"hostile-{number:06d}" for number in range(count)]
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in range(count)]
    offsets = [OffsetCommitRequestTopic(name="hostile-nowhere", partitions=partitions)]
    wanted = [MetadataRequestTopic(name=name) for name in names]
    return [
        request_frame(DescribeGroupsRequest(groups=names), 5),
        request_frame(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 8),
        request_frame(OffsetCommitRequest(group_id="hostile-group", topics=offsets), 8),
        request_frame(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4),
    ]


def describe_configs_of_groups(count: int) -> bytes:
    """DescribeConfigs of so many groups, with all that can be requested."""
    resources = [DescribeConfigsResource(resource_type=32, resource_name=f"g{number}") for number in range(count)]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    return request_frame(request, 4)


def join_bytes(group: str, metadata: bytes, version: int = 3) -> bytes:
    """JoinGroup of a new member whose session is short. From version 4 on it is only given an id."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=3_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return request_frame(request, version)


def subscription_of_empty_names(count: int) -> bytes:
    """What a member of a consumer group says, two bytes for each topic."""
    return struct.pack(">hi", 0, count) + bytes(2 * count) + struct.pack(">i", -1)


# Batches


def _batch(payload: bytes, count: int, codec: Compression, max_timestamp: int = RECORD_TIMESTAMP) -> bytes:
    header = read_header(build_batch([NewRecord(RECORD_TIMESTAMP, b"k", b"v")]))
    changed = header._replace(
        records_count=count, last_offset_delta=count - 1, attributes=int(codec), max_timestamp=max_timestamp
    )
    return bytes(assemble_batch(changed, compress(codec, payload)))


def header_bomb(headers: int, max_timestamp: int = RECORD_TIMESTAMP) -> bytes:
    """One record with so many headers of an empty key and an empty value: two zero bytes each, compressed well."""
    body = b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(-1) + encode_varint(headers) + bytes(2 * headers)
    return _batch(encode_varint(len(body)) + body, 1, Compression.ZSTD, max_timestamp)


def record_bomb(records: int, max_timestamp: int = RECORD_TIMESTAMP) -> bytes:
    """So many records with a key of one byte; zstd makes little of their equal shape."""
    parts = []
    for delta in range(records):
        body = b"\0\0" + encode_varint(delta) + b"\x02k\x01\0"
        parts.append(encode_varint(len(body)) + body)
    return _batch(b"".join(parts), records, Compression.ZSTD, max_timestamp)


def counting_batch(count: int) -> bytes:
    """A batch of a few bytes that counts ``count`` records."""
    return _batch(b"\xff" * 40, count, Compression.ZSTD)


def random_payload(rng: random.Random, codec: Compression) -> bytes:
    return _batch(rng.randbytes(200), 3, codec)


def incompressible_batch(rng: random.Random, size: int) -> bytes:
    return bytes(build_batch([NewRecord(RECORD_TIMESTAMP, b"k", rng.randbytes(size))]))
