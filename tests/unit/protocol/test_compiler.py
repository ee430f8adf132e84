"""What the compiled codecs promise beyond being right: views, uncopied buffers, named fields, skipped tags."""

import pytest

from oncelog.protocol.compiler import decode, decoder, encode, encoder
from oncelog.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from oncelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from oncelog.protocol.primitives import DecodeError, EncodeError
from oncelog.protocol.schema import Message, Records, SharedList


def produce(records: Records | None) -> ProduceRequest:
    return ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])])


def fetched(records: Records | None) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])


def records_of(request: ProduceRequest) -> Records | None:
    return request.topic_data[0].partition_data[0].records


@pytest.mark.parametrize("version", [3, 9])
def test_decoded_records_are_a_view_of_the_frame(version: int) -> None:
    frame = bytearray(encode(produce(b"-" * 300), version))
    records = records_of(decode(ProduceRequest, version, frame))
    assert isinstance(records, memoryview)
    frame[frame.index(b"-")] = ord("+")
    assert records[:2] == b"+-"


@pytest.mark.parametrize("version", [4, 12])
def test_large_records_are_parts_of_their_own(version: int) -> None:
    batches: list[bytes | bytearray | memoryview] = [bytes(2000), memoryview(bytes(3000))]
    parts = encoder(FetchResponse, version)(fetched(batches))
    assert [part for part in parts if any(part is batch for batch in batches)] == batches
    assert b"".join(parts) == encode(fetched(b"".join(batches)), version)


@pytest.mark.parametrize("version", [4, 12])
def test_small_records_join_what_surrounds_them(version: int) -> None:
    assert len(encoder(FetchResponse, version)(fetched([b"small", b"batches"]))) == 1


def test_encoding_continues_what_was_begun() -> None:
    message = HeartbeatRequest(group_id="g")
    start = bytearray(b"header")
    assert encoder(HeartbeatRequest, 4)(message, start) == [b"header" + encode(message, 4)]


def test_decoding_begins_at_a_position_and_says_where_it_ended() -> None:
    encoded = encode(HeartbeatResponse(error_code=27), 4)
    message, end = decoder(HeartbeatResponse, 4)(b"xx" + encoded + b"yy", 2)
    assert (message.error_code, end) == (27, 2 + len(encoded))


def test_codec_function_is_compiled_once() -> None:
    assert decoder(HeartbeatRequest, 3) is decoder(HeartbeatRequest, 3)
    assert encoder(HeartbeatRequest, 3) is encoder(HeartbeatRequest, 3)


def test_undeclared_version_has_no_codec() -> None:
    for version in (-1, 5):
        with pytest.raises(ValueError, match="HeartbeatRequest has no version"):
            decoder(HeartbeatRequest, version)
        with pytest.raises(ValueError, match="HeartbeatRequest has no version"):
            encoder(HeartbeatRequest, version)


@pytest.mark.parametrize(
    ("message", "version", "named"),
    [
        (ProduceResponse(responses=None), 9, "ProduceResponse v9: responses is None"),  # type: ignore[arg-type]
        (ProduceRequest(acks=1 << 20), 9, "acks = 1048576"),
        (ProduceRequest(topic_data=[TopicProduceData(name="é" * 20_000)]), 9, r"topic_data\[0\].name is longer"),
        (ProduceRequest(topic_data=[TopicProduceData(name="é" * 20_000)]), 8, r"topic_data\[0\].name is longer"),
        (FindCoordinatorRequest(coordinator_keys=["a", 7]), 4, r"coordinator_keys\[1\] is a int"),  # type: ignore[list-item]
        (FindCoordinatorRequest(key="\ud800"), 0, "key is not valid Unicode"),
        (ListOffsetsRequest(topics=["t"]), 1, r"topics\[0\] is a str, not a ListOffsetsTopic"),  # type: ignore[list-item]
        (FetchRequest(rack_id=None), 11, "rack_id is None"),  # type: ignore[arg-type]
        (FindCoordinatorRequest(coordinator_keys=["a"] * 2 + [None]), 4, r"\[2\] is None"),  # type: ignore[list-item]
    ],
)
def test_encoding_that_fails_names_the_field(message: Message, version: int, named: str) -> None:
    with pytest.raises(EncodeError, match=named):
        encode(message, version)


def test_null_where_it_is_not_allowed_names_the_field() -> None:
    nulled = encode(FindCoordinatorRequest(key=""), 0).replace(b"\0\0", b"\xff\xff")
    with pytest.raises(DecodeError, match=r"FindCoordinatorRequest\.key is null"):
        decode(FindCoordinatorRequest, 0, nulled)
    with pytest.raises(DecodeError, match=r"FindCoordinatorRequest\.coordinator_keys is null"):
        decode(FindCoordinatorRequest, 4, b"\0\0\0")


def test_count_beyond_what_was_received_names_the_field() -> None:
    with pytest.raises(DecodeError, match=r"coordinator_keys has length 100 where 1 bytes are left"):
        decode(FindCoordinatorRequest, 4, b"\0\x65\0")


def test_compact_string_keeps_the_limit_of_the_old_form() -> None:
    longest = encode(FindCoordinatorRequest(key="x" * 32_767), 3)
    assert len(decode(FindCoordinatorRequest, 3, longest).key) == 32_767
    longer = b"\x81\x80\x02" + b"x" * 32_768 + b"\0\0"
    with pytest.raises(DecodeError, match="key has length 32768"):
        decode(FindCoordinatorRequest, 3, longer)


def test_string_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(DecodeError, match="UTF-8"):
        decode(FindCoordinatorRequest, 0, b"\0\1\xff")


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(HeartbeatResponse(), 4)
    tagged = plain[:-1] + b"\x02" + b"\x05\x03abc" + b"\xff\x01\x00"
    message, end = decoder(HeartbeatResponse, 4)(tagged, 0)
    assert (message, end) == (HeartbeatResponse(), len(tagged))


def test_unknown_tagged_fields_beside_known_ones_are_skipped() -> None:
    known = FetchRequest(cluster_id="c")
    tail = encode(known, 12)[-5:]
    assert tail == b"\x01\x00\x02\x02c"
    tagged = encode(known, 12)[:-5] + b"\x02\x00\x02\x02c" + b"\x30\x02zz"
    message, end = decoder(FetchRequest, 12)(tagged, 0)
    assert (message, end) == (known, len(tagged))


@pytest.mark.parametrize("value", [b"\x00\x03\x02c!", b"\x00\x01\x02c"])
def test_tagged_field_must_have_the_size_it_declares(value: bytes) -> None:
    encoded = encode(FetchRequest(), 12)
    with pytest.raises(DecodeError, match=r"FetchRequest\.cluster_id does not have the size"):
        decode(FetchRequest, 12, encoded[:-1] + b"\x01" + value)


def test_tagged_field_with_its_default_is_left_out() -> None:
    absent, default = fetched(None), fetched(None)
    default.responses[0].partitions[0].diverging_epoch = EpochEndOffset()
    assert encode(absent, 12) == encode(default, 12)
    assert decode(FetchResponse, 12, encode(default, 12)).responses[0].partitions[0].diverging_epoch is None


def test_nullable_structure_round_trips_as_none() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=3)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request


def test_fields_that_a_version_does_not_carry_have_their_defaults() -> None:
    request = FetchRequest(session_id=5, rack_id="r", max_wait_ms=9)
    assert decode(FetchRequest, 4, encode(request, 4)) == FetchRequest(max_wait_ms=9)


def test_decoded_defaults_are_not_shared() -> None:
    encoded = encode(FetchRequest(), 4)
    first, second = decode(FetchRequest, 4, encoded), decode(FetchRequest, 4, encoded)
    assert first.forgotten_topics_data == []
    assert first.forgotten_topics_data is not second.forgotten_topics_data


def update_metadata(topics: list[UpdateMetadataTopicState], *, broker_epoch: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_epoch=3, broker_epoch=broker_epoch, topic_states=topics, live_brokers=[UpdateMetadataBroker(id=1)]
    )


@pytest.mark.parametrize("version", [0, 4, 5, 7, 8])
def test_shared_list_is_encoded_once_per_version(version: int) -> None:
    partitions = [UpdateMetadataPartitionState(partition_index=index, replicas=[1, 2, 3]) for index in range(200)]
    topics = [UpdateMetadataTopicState(topic_name="t", partition_states=partitions)]
    shared = SharedList(topics)
    plain = [encode(update_metadata(topics, broker_epoch=epoch), version) for epoch in range(3)]
    frames = [encoder(UpdateMetadataRequest, version)(update_metadata(shared, broker_epoch=e)) for e in range(3)]
    assert [b"".join(frame) for frame in frames] == plain
    if version >= 5:  # Older versions carry partitions in a field of their own.
        large = [[part for part in frame if len(part) > 2_000] for frame in frames]
        assert [len(parts) for parts in large] == [1, 1, 1]
        assert all(parts[0] is large[0][0] for parts in large)


def test_small_shared_list_joins_what_surrounds_it() -> None:
    assert len(encoder(UpdateMetadataRequest, 8)(update_metadata(SharedList(), broker_epoch=1))) == 1
