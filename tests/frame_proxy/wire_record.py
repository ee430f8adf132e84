"""What clients sent through the proxy: who they said they were, and which versions of which APIs they spoke."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from tests.frame_proxy.exchange import Request

_FIRST_WITH_SOFTWARE = 3


@dataclass
class ConnectionRecord:
    """One client connection."""

    client_ids: set[str | None] = field(default_factory=set)
    software: str = ""
    """Name and version, from ApiVersions 3 and newer (KIP-511)."""
    sent: Counter[tuple[ApiKey, int]] = field(default_factory=Counter)
    """How many requests of each (API, version)."""


class WireRecord:
    """All connections of one proxy, by number."""

    def __init__(self) -> None:
        self.connections: defaultdict[int, ConnectionRecord] = defaultdict(ConnectionRecord)

    def add(self, request: Request) -> None:
        connection = self.connections[request.connection]
        connection.client_ids.add(request.header.client_id)
        connection.sent[request.api, request.version] += 1
        is_named = _FIRST_WITH_SOFTWARE <= request.version <= ApiVersionsRequest.versions.last
        if request.api is ApiKey.API_VERSIONS and is_named:
            requested = request.message(ApiVersionsRequest)
            connection.software = f"{requested.client_software_name} {requested.client_software_version}"

    def versions(self, api: ApiKey) -> set[int]:
        """Every version in which any client sent requests of the API."""
        return {version for c in self.connections.values() for (key, version) in c.sent if key is api}

    def software(self) -> set[str]:
        return {connection.software for connection in self.connections.values()} - {""}
