"""Which broker a simulated client sends a request to. With one broker that is no question; see ``cluster_routes``."""

from typing import Protocol

from oncelog.protocol.schema import Message


class Routes(Protocol):
    """One client's idea of who is responsible for what."""

    def port(self, request: Message) -> int:
        """Where to send a request. Raises NoResponse if no broker is known."""
        ...

    def heard(self, request: Message, response: Message) -> None:
        """This came back."""
        ...

    def lost(self, request: Message) -> None:
        """Nothing came back."""
        ...


class OneBroker:
    """All requests go to one port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def port(self, request: Message) -> int:
        return self._port

    def heard(self, request: Message, response: Message) -> None:
        pass

    def lost(self, request: Message) -> None:
        pass
