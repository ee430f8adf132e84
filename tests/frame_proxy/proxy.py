"""The proxy itself: one listening port in front of each broker, named in their stead by every response.

Each client connection has a task that takes its frames in order, asks the script, and sends them on over a connection
of its own to the broker, and a second one that passes the answers back. When the client goes, the broker's side is
closed, unless a frame is held on it.
"""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from struct import Struct

from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.schema import Message
from tests.frame_proxy.addresses import ProxyAddress, redirect
from tests.frame_proxy.downstream import Downstream
from tests.frame_proxy.exchange import Request
from tests.frame_proxy.script import Cut, Delay, LateFrame, Script, Wait
from tests.frame_proxy.upstream import Upstream, connect
from tests.frame_proxy.wire_record import WireRecord

_SIZE = Struct(">i")
_HOST = "127.0.0.1"
_BEING_COMPLETED = {"PrepareCommit", "PrepareAbort"}
_MOST_REQUESTS = 100_000
"""Round trips after which a transaction that is being completed counts as stuck: tens of seconds."""


class Stuck(Exception):
    """A transaction is not completed although its coordinator responds."""


class FrameProxy:
    """Serves between ``start`` and ``stop``; both, and ``deliver_remaining``, belong to one event loop."""

    def __init__(self, broker_ports: Sequence[int], script: Script) -> None:
        """Of several brokers, a late frame that is not held on a connection finds none: it does not say which."""
        self._broker_ports = broker_ports
        self._script = script
        self._servers: list[asyncio.Server] = []
        self._proxies: dict[int, ProxyAddress] = {}
        """By the port of the broker."""
        self.record = WireRecord()
        self._numbers = itertools.count()
        self._held: dict[int, Upstream] = {}
        """Broker's sides of connections that were cut, by connection number."""
        self._lanes: dict[tuple[str, int], Upstream] = {}
        """Connections for questions of the proxy's own, by sender and port of the broker."""

    @property
    def addresses(self) -> list[ProxyAddress]:
        """Where it listens, once it does."""
        return list(self._proxies.values())

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Listen. ``tasks`` owns the connections: a fault of the proxy itself ends the group."""
        for broker_port in self._broker_ports:
            await self._listen(tasks, broker_port)

    async def _listen(self, tasks: asyncio.TaskGroup, broker_port: int) -> None:
        def accepted(client: Downstream) -> None:
            tasks.create_task(self._serve(client, broker_port))

        server = await asyncio.get_running_loop().create_server(lambda: Downstream(accepted), _HOST)
        self._servers.append(server)
        self._proxies[broker_port] = ProxyAddress(_HOST, server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        for server in self._servers:
            server.close()
        for upstream in (*self._held.values(), *self._lanes.values()):
            upstream.close()

    async def deliver_remaining(self) -> None:
        """Let what is still late arrive, once the clients are gone."""
        await self._deliver(self._script.remaining())

    # One connection

    async def _serve(self, client: Downstream, broker_port: int) -> None:
        number = next(self._numbers)
        try:
            upstream = await connect(broker_port)
        except OSError:
            client.cut()
            return
        responses: asyncio.Queue[tuple[Request, asyncio.Future[memoryview | None]] | None] = asyncio.Queue(1_000)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_responses(client, responses))
                await self._pass_requests(number, client, upstream, responses)
                await responses.put(None)
        finally:
            client.cut()
            if number not in self._held:
                upstream.close()

    async def _pass_requests(
        self,
        number: int,
        client: Downstream,
        upstream: Upstream,
        responses: "asyncio.Queue[tuple[Request, asyncio.Future[memoryview | None]] | None]",
    ) -> None:
        while (frame := await client.next_frame()) is not None:
            request = Request.parse(number, frame)
            self.record.add(request)
            action = self._script.requested(request)
            if isinstance(action, Wait):
                action = await asyncio.wrap_future(action.then)
            if isinstance(action, Cut):
                self._held[number] = upstream
                client.cut()
                return
            if isinstance(action, Delay):
                await self._round_trips(action.round_trips)
            if _has_response(request):
                await responses.put((request, upstream.send(frame)))
            else:
                upstream.send_without_response(frame)

    async def _pass_responses(
        self,
        client: Downstream,
        responses: "asyncio.Queue[tuple[Request, asyncio.Future[memoryview | None]] | None]",
    ) -> None:
        while (awaited := await responses.get()) is not None:
            request, future = awaited
            response = await future
            if response is None:
                client.cut()
                continue
            await self._deliver(self._script.responded(request, response))
            client.write(redirect(request, response, self._proxies) or [_SIZE.pack(len(response)), response])

    # Late frames

    async def _deliver(self, frames: Iterable[LateFrame]) -> None:
        for late in frames:
            await self._completed(late.sender)
            self._script.delivered(late, await self._arrive(late))
            await self._completed(late.sender)

    async def _arrive(self, late: LateFrame) -> memoryview | None:
        if late.held_on is None:
            (broker_port,) = self._broker_ports
            own = await connect(broker_port)
            response = await own.send(late.frame)
            own.close()
            return response
        upstream = self._held[late.held_on]
        response = await upstream.send(late.frame)
        upstream.close()
        return response

    async def _completed(self, transactional_id: str) -> None:
        """Wait until no transaction of the id is being completed, so that what comes next meets one definite state."""
        for broker_port in self._broker_ports:  # Only the coordinator has a state to tell.
            await self._completed_at(broker_port, transactional_id)

    async def _completed_at(self, broker_port: int, transactional_id: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        for _ in range(_MOST_REQUESTS):
            response = await self._ask(transactional_id, broker_port, request, 0)
            _, described = parse_response(DescribeTransactionsResponse, 0, response)
            if described.transaction_states[0].transaction_state not in _BEING_COMPLETED:
                return
        raise Stuck(transactional_id)

    async def _round_trips(self, count: int) -> None:
        for _ in range(count):
            await self._ask("", self._broker_ports[0], ApiVersionsRequest(), 0)

    async def _ask(self, sender: str, broker_port: int, request: Message, version: int) -> memoryview:
        frame = b"".join(encode_request(0, "frame-proxy", request, version))
        response = await (await self._lane(sender, broker_port)).send(frame[_SIZE.size :])
        if response is None:
            raise ConnectionError("the broker closed the proxy's own connection")
        return response

    async def _lane(self, sender: str, broker_port: int) -> Upstream:
        lane = self._lanes.get((sender, broker_port))
        if lane is None or not lane.is_open:
            lane = self._lanes[sender, broker_port] = await connect(broker_port)
        return lane


def _has_response(request: Request) -> bool:
    return request.header.api_key != ProduceRequest.api_key or request.message(ProduceRequest).acks != 0
