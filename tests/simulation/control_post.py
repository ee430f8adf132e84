"""The controller's requests on their way to other brokers: seen, held up, and delivered once more.

A request that is held up keeps all behind it on its connection, as TCP does. The controller gives the connection up
after a while and repeats the request over another one; what was held may arrive afterwards, perhaps when there is
another controller. A request that is delivered once more comes over a connection of its own, with the same bytes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.virtual_loop import SimTransport
from tests.simulation.wire_client import NoResponse, WireClient

_SIZE_BYTES: Final = 4
_HEADER: Final = Struct(">ihhih")
"""Size, API key, version, correlation id and the length of the client id."""
_REMEMBERED: Final = 200

KINDS: Final = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrRequest,
    ApiKey.STOP_REPLICA: StopReplicaRequest,
    ApiKey.UPDATE_METADATA: UpdateMetadataRequest,
}


class ControlFrame(NamedTuple):
    """A control request as it was sent."""

    sender: int
    receiver: int
    kind: type[LeaderAndIsrRequest] | type[StopReplicaRequest] | type[UpdateMetadataRequest]
    data: bytes


class ControlPost:
    """All of them, in one cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.sent: deque[ControlFrame] = deque(maxlen=_REMEMBERED)
        """The last requests, oldest first."""
        self.wants: Callable[[ControlFrame], bool] = lambda frame: False
        """Which of the next requests are to be held."""
        self._cluster = cluster
        self._held: list[SimTransport] = []
        cluster.loop.network.tap = self._on_write

    def _on_write(self, transport: SimTransport, data: bytes) -> None:
        frame = _control_frame(transport, data)
        if frame is not None:
            self.sent.append(frame)
            if self.wants(frame):
                transport.hold()
                self._held.append(transport)

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def release(self) -> None:
        """Deliver what is held, and hold nothing more."""
        self.wants = lambda frame: False
        held, self._held = self._held, []
        for transport in held:
            transport.release()

    async def deliver_again(self, frame: ControlFrame) -> None:
        """Send the same bytes once more, if the receiver runs."""
        try:
            client = await WireClient.connect(self._cluster[frame.receiver].port)
        except NoResponse:
            return
        client.send_bytes(frame.data)
        await asyncio.sleep(0.05)
        client.close()


def _control_frame(transport: SimTransport, data: bytes) -> ControlFrame | None:
    """None for a response, and for another request."""
    if len(data) < _HEADER.size:
        return None
    size, api_key, _, _, length = _HEADER.unpack_from(data)
    if size != len(data) - _SIZE_BYTES or api_key not in KINDS:
        return None
    sender, receiver = _broker_id(transport), _broker_id(transport.peer)
    client_id = data[_HEADER.size : _HEADER.size + length]
    if sender is None or receiver is None or client_id != b"broker-%d" % sender:
        return None
    return ControlFrame(sender, receiver, KINDS[ApiKey(api_key)], data)


def _broker_id(transport: SimTransport) -> int | None:
    name = "" if transport.process is None else transport.process.name
    kind, _, number = name.partition(" ")
    return int(number) if kind == "broker" else None
