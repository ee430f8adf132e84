"""Headers and sizes around messages, held against kio's header classes and against the rules that have exceptions."""

import io
import struct

import pytest
from kio.serial import entity_writer

from oncelog.protocol.api_keys import FIRST_FLEXIBLE_VERSION, ApiKey
from oncelog.protocol.compiler import encode
from oncelog.protocol.framing import encode_request, encode_response, parse_request_header, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.produce import ProduceResponse
from oncelog.protocol.primitives import DecodeError, EncodeError
from oncelog.protocol.schema import Message
from tests.unit.protocol import kio_peer
from tests.unit.protocol.declared import message_classes

REQUESTS = [cls for name, cls in message_classes().items() if name.endswith("Request")]


def frame_of(cls: type[Message], version: int, client_id: str | None = "me") -> bytes:
    return b"".join(encode_request(7, client_id, cls(), version))


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_parsed_request_header_ends_where_the_body_begins(cls: type[Message]) -> None:
    for version in cls.versions:
        for client_id in ("me", "", "日本", None):
            frame = memoryview(frame_of(cls, version, client_id))
            assert int.from_bytes(frame[:4]) == len(frame) - 4
            header, position = parse_request_header(frame[4:])
            without_client_id = cls is ControlledShutdownRequest and version == 0
            assert header == (cls.api_key, version, 7, None if without_client_id else client_id)
            assert frame[4 + position :] == encode(cls(), version)


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_request_header_is_that_of_kio(cls: type[Message]) -> None:
    for version in cls.versions:
        peer = kio_peer.peer_class(cls.__name__, version)
        if peer is None:
            continue
        header = peer.__header_schema__(
            request_api_key=cls.api_key, request_api_version=version, correlation_id=7, client_id="me"
        )
        written = io.BytesIO()
        entity_writer(type(header))(written, header)
        assert frame_of(cls, version)[4:] == written.getvalue() + encode(cls(), version)


def test_first_flexible_versions_are_those_of_the_declarations() -> None:
    for cls in REQUESTS:
        flexible = [version for version in cls.versions if version in cls.flexible]
        if flexible:
            assert cls.api_key is not None
            first = FIRST_FLEXIBLE_VERSION[cls.api_key]
            assert first <= flexible[0]
            assert all(version < first for version in cls.versions if version not in flexible)
        else:
            assert FIRST_FLEXIBLE_VERSION.get(cls.api_key or 0, 99) > cls.versions.last


def test_unknown_version_still_has_a_readable_header() -> None:
    """KIP-511: whoever asks for a version of ApiVersions that is not served must be answered, so its id is needed."""
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, 2) + b"me" + b"\0" + b"whatever follows"
    header, _ = parse_request_header(memoryview(frame))
    assert header == (18, 99, 5, "me")


def test_unknown_api_still_has_a_readable_header() -> None:
    header, position = parse_request_header(memoryview(struct.pack(">hhih", 999, 3, 5, -1)))
    assert (header, position) == ((999, 3, 5, None), 10)


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    frame = struct.pack(">hhih", ApiKey.METADATA, 12, 5, -1) + b"\x02\x00\x03abc\x81\x01\x00" + b"body"
    header, position = parse_request_header(memoryview(frame))
    assert header.correlation_id == 5
    assert frame[position:] == b"body"


def test_client_id_that_is_not_utf_8_is_accepted() -> None:
    header, _ = parse_request_header(memoryview(struct.pack(">hhih", 3, 1, 5, 2) + b"\xff\xfe"))
    assert header.client_id == "\N{REPLACEMENT CHARACTER}" * 2


@pytest.mark.parametrize("cut", range(len(frame_of(MetadataRequest, 12)) - 4 - len(encode(MetadataRequest(), 12))))
def test_request_that_ends_in_its_header_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError):
        parse_request_header(memoryview(frame_of(MetadataRequest, 12))[4 : 4 + cut])


def test_response_header_of_api_versions_is_never_flexible() -> None:
    for version in ApiVersionsResponse.versions:
        response = ApiVersionsResponse(error_code=35)
        frame = b"".join(encode_response(9, response, version))
        assert frame[4:] == struct.pack(">i", 9) + encode(response, version)
        assert parse_response(ApiVersionsResponse, version, memoryview(frame)[4:]) == (9, response)


def test_responses_come_back_from_their_frames() -> None:
    for version in ProduceResponse.versions:
        response = ProduceResponse(throttle_time_ms=3 if version else 0)
        frame = memoryview(b"".join(encode_response(9, response, version)))
        assert len(frame) == 4 + 4 + (version >= 9) + len(encode(response, version))
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        assert parse_response(ProduceResponse, version, frame[4:]) == (9, response)


def test_large_records_travel_to_the_socket_uncopied() -> None:
    records = memoryview(bytes(5000))
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])
    parts = encode_response(1, response, 12)
    assert any(part is records for part in parts)
    assert int.from_bytes(bytes(parts[0])[:4]) == sum(map(len, parts)) - 4


def test_response_that_ends_in_its_header_is_refused() -> None:
    for cut in range(5):
        with pytest.raises(DecodeError):
            parse_response(ProduceResponse, 9, memoryview(bytes(cut)))


def test_client_id_too_long_for_a_header_is_refused() -> None:
    with pytest.raises(EncodeError):
        encode_request(1, "x" * 32_768, ApiVersionsRequest(), 0)
