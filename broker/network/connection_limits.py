"""``Limits``: the settings that bound a connection."""

from typing import Protocol


class Limits(Protocol):
    """The settings that bound a connection (``BrokerConfig`` has them)."""

    @property
    def socket_request_max_bytes(self) -> int: ...
    @property
    def oncelog_connection_max_inflight_requests(self) -> int: ...
    @property
    def oncelog_connection_max_inflight_bytes(self) -> int: ...
