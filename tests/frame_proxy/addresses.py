"""Responses that name brokers, made to name proxies. Pure.

Everything is on loopback, so a broker is known by its port. Messages are decoded and encoded again only where an
address is in them; all other responses keep their bytes.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.framing import encode_response, parse_response
from oncelog.protocol.messages.describe_cluster import DescribeClusterResponse
from oncelog.protocol.messages.fetch import FetchResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorResponse
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.messages.produce import ProduceResponse
from oncelog.protocol.schema import Buffer, Message
from tests.frame_proxy.exchange import Request

_FIRST_WITH_ENDPOINTS = {ApiKey.PRODUCE: 10, ApiKey.FETCH: 16}
_NAMES_BROKERS: Mapping[ApiKey, type[Message]] = {
    ApiKey.METADATA: MetadataResponse,
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse,
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterResponse,
    ApiKey.PRODUCE: ProduceResponse,
    ApiKey.FETCH: FetchResponse,
}


class ProxyAddress(NamedTuple):
    """Where a proxy listens."""

    host: str
    port: int


class Located(Protocol):
    """Any part of a response that says where a broker is."""

    host: str
    port: int


def redirect(request: Request, response: memoryview, proxies: Mapping[int, ProxyAddress]) -> list[Buffer] | None:
    """The response with its size, naming for each broker's port its proxy; None if it may go on as it is."""
    cls = _NAMES_BROKERS.get(request.api)
    if cls is None or request.version < _FIRST_WITH_ENDPOINTS.get(request.api, 0):
        return None
    correlation_id, message = parse_response(cls, request.version, response)
    changed = False
    for located in _addresses(message):
        proxy = proxies.get(located.port)
        if proxy is not None:
            located.host, located.port = proxy
            changed = True
    return encode_response(correlation_id, message, request.version) if changed else None


def _addresses(message: object) -> Iterator[Located]:
    match message:
        case MetadataResponse() | DescribeClusterResponse():
            yield from message.brokers
        case FindCoordinatorResponse():
            yield message
            yield from message.coordinators
        case ProduceResponse() | FetchResponse():
            yield from message.node_endpoints
