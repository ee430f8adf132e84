"""A broker that answers what its script says, with the real codec, on whatever event loop runs."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from enum import Enum, auto
from struct import Struct
from typing import Any, cast

from oncelog.clients.connection import Address
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.compiler import decoder
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_response, parse_request_header
from oncelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.schema import Message, Versions

_SIZE = Struct(">i")


class Reaction(Enum):
    """What a broker can do instead of answering."""

    SILENCE = auto()
    CLOSE = auto()
    HOLD = auto()
    """Keep it for ``release``."""


ScriptedResponse = Message | bytes | Reaction
Script = Callable[[Message], ScriptedResponse]


class ScriptedBroker:
    """Listens on loopback. ``requests`` holds what came, ``script`` what to answer to each class of request."""

    def __init__(self, script: Mapping[type[Message], Script | ScriptedResponse], node_id: int = 1) -> None:
        self.script = dict(script)
        self.node_id = node_id
        self.requests: list[Message] = []
        self.versions_requested: list[tuple[type[Message], int]] = []
        self.transaction_version: int | None = None
        """The finalised level of the feature; None if nothing is told of features."""
        self.features_epoch = 1
        self.held: list[tuple[_ServerSide, int, int, Message]] = []
        self.versions: dict[int, Versions] = {}
        """Ranges to tell instead of everything that the codec knows."""
        self.refuse_api_versions_above: int | None = None
        self.api_versions: ScriptedResponse | None = None
        """What to answer to ApiVersions instead of the truth."""
        self.connections: list[_ServerSide] = []
        self._server: asyncio.Server | None = None

    async def start(self, tls: ssl.SSLContext | None = None, port: int = 0) -> Address:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _ServerSide(self), "127.0.0.1", port, ssl=tls)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self.address

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self.connections:
            connection.transport.close()

    def release(self, response: Script | ScriptedResponse) -> None:
        """Respond to the oldest request that was held."""
        connection, correlation_id, version, request = self.held.pop(0)
        connection.react(response(request) if callable(response) else response, correlation_id, version, request)

    def versions_of(self, cls: type[Message]) -> list[int]:
        """The versions that a class of request came in."""
        return [version for requested, version in self.versions_requested if requested is cls]

    def seen(self, cls: type[Message]) -> list[Message]:
        return [request for request in self.requests if type(request) is cls]

    def respond(self, request: Message) -> ScriptedResponse:
        self.requests.append(request)
        scripted = self.script[type(request)]
        return scripted if isinstance(scripted, Message | bytes | Reaction) else scripted(request)

    def tell_versions(self) -> ScriptedResponse:
        if self.api_versions is not None:
            return self.api_versions
        classes: list[type[Message]] = [*self.script, ApiVersionsRequest]
        known = {cls.api_key: cls.versions for cls in classes} | self.versions
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
                for key, versions in known.items()
                if key is not None
            ],
            **self._features(),
        )

    def _features(self) -> dict[str, Any]:
        if self.transaction_version is None:
            return {}
        level = FinalizedFeatureKey(name="transaction.version", max_version_level=self.transaction_version)
        return {"finalized_features_epoch": self.features_epoch, "finalized_features": [level]}


class _ServerSide(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._received = bytearray()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._broker.connections.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._broker.connections.remove(self)
        self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + _SIZE.unpack_from(self._received)[0]:
            end = 4 + _SIZE.unpack_from(self._received)[0]
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self._serve(memoryview(frame))

    def _serve(self, frame: memoryview) -> None:
        header, position = parse_request_header(frame)
        response: ScriptedResponse
        if header.api_key == ApiKey.API_VERSIONS:
            version, response = self._tell_versions(header.api_version)
        else:
            (cls,) = [cls for cls in self._broker.script if cls.api_key == header.api_key]
            version = header.api_version
            request = decoder(cls, version)(frame, position)[0]
            self._broker.versions_requested.append((cls, version))
            self.react(self._broker.respond(request), header.correlation_id, version, request)
            return
        self.react(response, header.correlation_id, version, None)

    def react(self, response: ScriptedResponse, correlation_id: int, version: int, request: Message | None) -> None:
        """Do what the script says."""
        if response is Reaction.HOLD:
            assert request is not None
            self._broker.held.append((self, correlation_id, version, request))
        elif response is Reaction.CLOSE:
            self.transport.close()
        elif isinstance(response, bytes):
            self.transport.write(response)
        elif isinstance(response, Message):
            self.transport.writelines(encode_response(correlation_id, response, version))

    def _tell_versions(self, requested: int) -> tuple[int, ScriptedResponse]:
        known = self._broker.refuse_api_versions_above
        if known is None or requested <= known:
            return requested, self._broker.tell_versions()
        served = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=known)
        return 0, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])


def metadata(
    brokers: Mapping[int, Address], leaders: Mapping[str, list[int]], controller_id: int = 1
) -> MetadataResponse:
    """A cluster whose topics have a partition for each leader listed."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=at.host, port=at.port) for node, at in brokers.items()],
        controller_id=controller_id,
        cluster_id="scripted",
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[leader])
                    for index, leader in enumerate(leaders_of_topic)
                ],
            )
            for name, leaders_of_topic in leaders.items()
        ],
    )


def requested_only(response: MetadataResponse) -> Script:
    """Respond to a metadata request with the topics that it asks for; unknown ones are errors."""

    def respond(request: Message) -> ScriptedResponse:
        assert isinstance(request, MetadataRequest)
        if request.topics is None:
            return response
        known = {topic.name: topic for topic in response.topics}
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(
            brokers=response.brokers,
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
            topics=[
                known.get(topic.name) or MetadataResponseTopic(name=topic.name, error_code=missing)
                for topic in request.topics
            ],
        )

    return respond
