"""Small requests over a connection, to notice that the other broker no longer responds.

They are sent five times a second; a broker that does not respond for 1.6 seconds (longer while it has much to do for
this one) counts as a broken connection. Heartbeats without a response are counted, not timed, so that a process
which was itself stopped for a while does not take others for dead.
"""

import asyncio
from typing import Final

from oncelog.broker.peers.lanes import replicas_in
from oncelog.clients import VERSION
from oncelog.clients.connection import SOFTWARE_NAME, Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.schema import Message

_INTERVAL_SECONDS: Final = 0.2
_MOST_MISSED: Final = 8
_REPLICAS_PER_HEARTBEAT: Final = 20
"""What a broker that does nothing else may take between two heartbeats to open or delete logs."""


class Heartbeat:
    """The heartbeats of one connection, which is aborted when too many are missed."""

    def __init__(self, connection: Connection) -> None:
        """Begin at once."""
        self._connection = connection
        if connection.session is not None:  # The other broker ends no session of a connection with heartbeats only.
            connection.session.end()
        self._loop = asyncio.get_running_loop()
        self._missed = 0
        self._allowed = 0
        """Further heartbeats that may be missed, for the work that is under way."""
        self._response: asyncio.Future[ApiVersionsResponse] | None = None
        self._timer = self._loop.call_later(_INTERVAL_SECONDS, self._beat)

    def stop(self) -> None:
        """Send no more."""
        self._timer.cancel()

    def expect_work(self, request: Message, response: "asyncio.Future[Message]") -> None:
        """Allow more missed heartbeats until a request with much work has its response."""
        beats = replicas_in(request) // _REPLICAS_PER_HEARTBEAT
        if beats:
            self._allowed += beats
            response.add_done_callback(lambda _: self._worked(beats))

    def _worked(self, beats: int) -> None:
        self._allowed -= beats

    def _beat(self) -> None:
        self._timer = self._loop.call_later(_INTERVAL_SECONDS, self._beat)
        if self._response is None or self._response.done():
            self._missed = 0
            self._send()
        else:
            self._missed += 1
            if self._missed >= _MOST_MISSED + self._allowed:
                self.stop()
                self._connection.abort()

    def _send(self) -> None:
        try:
            request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
            self._response = self._connection.send(request, ApiVersionsResponse)
        except ClientError:
            self.stop()  # The connection has ended, which its owner is about to notice.
        else:
            self._response.add_done_callback(_retrieve_exception)


def _retrieve_exception(response: "asyncio.Future[ApiVersionsResponse]") -> None:
    """Keep the loop from reporting a failure: the connection's end is noticed by its owner."""
    if not response.cancelled():
        response.exception()
