"""The elements of a request are counted over all its arrays and tags while it is decoded, and refused above a limit."""

import pytest

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.compiler import decoder, encode
from oncelog.protocol.framing import parse_request_header
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.fetch import FetchRequest, ForgottenTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.primitives import MAX_TAGGED_FIELDS, DecodeError, encode_uvarint
from oncelog.protocol.schema import Message

PARTITIONS = [ListOffsetsPartition(partition_index=index) for index in range(9)]
TEN: list[tuple[Message, int]] = [
    (DescribeGroupsRequest(groups=[""] * 10), 0),
    (DescribeGroupsRequest(groups=[""] * 10), 5),
    (MetadataRequest(topics=[MetadataRequestTopic(name="")] * 10), 9),
    (ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=PARTITIONS)]), 6),
    (FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(range(9)))]), 11),
]
"""Requests of ten elements: in one array or nested ones, of strings, structures and numbers."""


@pytest.mark.parametrize(("request_", "version"), TEN)
def test_elements_of_all_arrays_are_counted_together(request_: Message, version: int) -> None:
    data, decode = encode(request_, version), decoder(type(request_), version)
    assert decode(data, 0, 10)[0] == decode(data, 0)[0]
    with pytest.raises(DecodeError, match="more elements than a request of this kind may have"):
        decode(data, 0, 9)


def _tags(count: int) -> bytes:
    return encode_uvarint(count) + b"".join(encode_uvarint(1000 + tag) + b"\0" for tag in range(count))


def test_tagged_fields_count_as_elements() -> None:
    message = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    data = message[:-1] + _tags(9)
    decoder(MetadataRequest, 12)(data, 0, 10)
    with pytest.raises(DecodeError, match="more elements"):
        decoder(MetadataRequest, 12)(data, 0, 9)


def test_tagged_fields_of_one_structure_are_bounded() -> None:
    message = encode(ApiVersionsRequest(), 3)
    decoder(ApiVersionsRequest, 3)(message[:-1] + _tags(MAX_TAGGED_FIELDS), 0)
    with pytest.raises(DecodeError, match="129 tagged fields: at most 128 are accepted"):
        decoder(ApiVersionsRequest, 3)(message[:-1] + _tags(MAX_TAGGED_FIELDS + 1), 0)


def test_tagged_fields_of_a_request_header_are_bounded() -> None:
    start = ApiKey.API_VERSIONS.to_bytes(2, "big") + b"\0\3" + bytes(4) + b"\xff\xff"
    parse_request_header(memoryview(start + _tags(MAX_TAGGED_FIELDS)))
    with pytest.raises(DecodeError, match="129 tagged fields: at most 128 are accepted"):
        parse_request_header(memoryview(start + _tags(MAX_TAGGED_FIELDS + 1)))
