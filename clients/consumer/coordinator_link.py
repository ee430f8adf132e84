"""Requests to a group's coordinator, which is looked up when it is needed and again when it proves wrong.

It has connections of its own. A broker responds to the requests of a connection in their order, and to a JoinGroup when
the whole group has joined: metadata and offsets would wait behind it.
"""

from typing import TypeVar

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Connection
from oncelog.clients.errors import ConnectionLost, RequestTimedOut, Unreachable
from oncelog.clients.routes import Coordinator
from oncelog.protocol.schema import Message

R = TypeVar("R", bound=Message)

NO_RESPONSE = (Unreachable, ConnectionLost, RequestTimedOut)
"""Failures that say nothing about the group: retry, wherever its coordinator is then."""


class CoordinatorLink:
    """The coordinator of one group. A request is sent once; the caller judges the response."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._route = Coordinator.of_group(group_id)
        self._connection: Connection | None = None
        """The one that was used last."""
        self.group_id = group_id

    async def connection(self) -> Connection:
        """Return an open connection to the coordinator. Raises what is in ``NO_RESPONSE``, ``BrokerRefused``."""
        try:
            connection = await self._cluster.connection_to(await self._cluster.coordinator(self._route))
        except NO_RESPONSE:
            self.forget()
            raise
        self._connection = connection
        return connection

    async def send(
        self,
        request: Message,
        response_type: type[R],
        *,
        at_least: int = 0,
        at_most: int | None = None,
        seconds: float | None = None,
    ) -> R:
        """Return the response to one attempt. After an error of ``NO_RESPONSE`` the coordinator is looked up again."""
        connection = await self.connection()
        try:
            return await connection.send(request, response_type, at_least=at_least, at_most=at_most, timeout=seconds)
        except NO_RESPONSE:
            self.forget()
            raise

    def hang_up(self) -> None:
        """End the connection, and with it the requests in flight. The next request is sent over a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def forget(self) -> None:
        """Look the coordinator up again before the next request: it may be another broker."""
        self._cluster.forget_coordinator(self._route)
