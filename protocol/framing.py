"""Frames: what stands between the bytes of a connection and the messages in them.

A frame is a signed 32-bit size and that many bytes: a header, then a message. A request's header is (API key, API
version, correlation id, client id); in flexible versions of the API, tagged fields follow. A response's header is the
correlation id; in flexible versions tagged fields follow, but never for ApiVersions, because its client does not yet
know what the broker speaks.

A header can be parsed for every API and version, known or not, since a client that requests a version that is not
served gets an error response (KIP-511). Reading the body is then the dispatcher's decision. A client id that is not
UTF-8 is accepted with replacement characters, as in Kafka: it is only a name in logs and quotas.
"""

from collections.abc import Callable, Generator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias, TypeVar

from oncelog.protocol.api_keys import FIRST_FLEXIBLE_VERSION, ApiKey
from oncelog.protocol.compiler import decoder, encoder
from oncelog.protocol.primitives import MAX_STRING_BYTES, DecodeError, EncodeError, bad_length, skip_tags
from oncelog.protocol.schema import Buffer, Message
from oncelog.protocol.sliced_encoder import Budget, sliced_encoder

M = TypeVar("M", bound=Message)

_REQUEST_HEADER: Final = Struct(">hhih")
_CLIENT_ID_AT: Final = 8
_SIZE: Final = Struct(">i")
_SIZE_AND_RESPONSE_HEADER: Final = Struct(">ii")
_SIZE_AND_FLEXIBLE_RESPONSE_HEADER: Final = Struct(">iix")
"""With the number of tagged fields, which is 0."""
_SIZE_AND_REQUEST_HEADER: Final = Struct(">ihhih")
_NEVER_FLEXIBLE: Final = 32_768
_new_tuple: Final = tuple.__new__
"""Makes a named tuple without the detour of its constructor."""
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)


class RequestHeader(NamedTuple):
    """What a client says about its request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Read the header of a request frame (without its size): (header, position of the body)."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = _REQUEST_HEADER.size
        if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
            return RequestHeader(api_key, api_version, correlation_id, None), _CLIENT_ID_AT
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise bad_length("client_id", length, len(frame) - position)
            client_id = str(frame[position:end], "utf-8", "replace")
            position = end
        if api_version >= FIRST_FLEXIBLE_VERSION.get(api_key, _NEVER_FLEXIBLE):
            count = frame[position]
            position += 1
            if count:
                position = skip_tags(frame, position, count, len(frame))
    except (StructError, IndexError):
        raise DecodeError("a request that ends inside its header") from None
    return _new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id)), position


def encode_request(correlation_id: int, client_id: str | None, request: Message, version: int) -> list[Buffer]:
    """Return a request as a frame with its size, in as many buffers as its records need."""
    cls = type(request)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    if length > MAX_STRING_BYTES:
        raise EncodeError(f"a client id of {length} bytes")
    api_key, flexible = cls._api_key, cls._flexible  # Not by the properties, which cost as much as all the rest.
    start = bytearray(_SIZE_AND_REQUEST_HEADER.pack(0, api_key, version, correlation_id, length))
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        del start[_SIZE.size + _CLIENT_ID_AT :]
    else:
        start += name
    if flexible.first <= version <= flexible.last:
        start.append(0)
    return _with_size(encoder(cls, version)(request, start))


ResponseEncoder: TypeAlias = Callable[[int, Message], list[Buffer]]
"""(correlation id, response) to a frame with its size, in as many buffers as its records need."""


def response_encoder(cls: type[Message], version: int) -> ResponseEncoder:
    """Return the function that encodes responses of one class in one version."""
    encode_message, start = encoder(cls, version), _response_header(cls, version).pack

    def encode(correlation_id: int, response: Message) -> list[Buffer]:
        return _with_size(encode_message(response, bytearray(start(0, correlation_id))))

    return encode


def encode_response(correlation_id: int, response: Message, version: int) -> list[Buffer]:
    """Return a response as a frame with its size; ``response_encoder`` serves many of them."""
    return response_encoder(type(response), version)(correlation_id, response)


def encode_response_in_slices(
    correlation_id: int, response: Message, version: int, budget: Budget
) -> Generator[None, object, list[Buffer]]:
    """Return what ``encode_response`` returns; yield whenever the budget is used up."""
    cls = type(response)
    start = bytearray(_response_header(cls, version).pack(0, correlation_id))
    return _with_size((yield from sliced_encoder(cls, version)(response, start, budget)))


def _response_header(cls: type[Message], version: int) -> Struct:
    is_flexible = version in cls.flexible and cls.api_key != _API_VERSIONS
    return _SIZE_AND_FLEXIBLE_RESPONSE_HEADER if is_flexible else _SIZE_AND_RESPONSE_HEADER


def parse_response(cls: type[M], version: int, frame: memoryview) -> tuple[int, M]:
    """Read a response frame (without its size): (correlation id, message)."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
        position = _SIZE.size
        flexible = cls._flexible
        if flexible.first <= version <= flexible.last and cls._api_key != _API_VERSIONS:
            count = frame[position]
            position += 1
            if count:
                position = skip_tags(frame, position, count, len(frame))
    except (StructError, IndexError):
        raise DecodeError("a response that ends inside its header") from None
    message, _ = decoder(cls, version)(frame, position)
    return correlation_id, message


def _with_size(parts: list[Buffer]) -> list[Buffer]:
    size = (len(parts[0]) if len(parts) == 1 else sum(map(len, parts))) - _SIZE.size
    try:
        _SIZE.pack_into(parts[0], 0, size)
    except StructError as error:
        raise EncodeError(f"a frame of {size} bytes") from error
    return parts
