"""Addresses behind which there is no broker: every client names the address, what is wrong, and the remedy."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from oncelog import Admin, Consumer, Producer
from oncelog.clients.errors import NoBrokerReachable

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"


class OtherServer(asyncio.Protocol):
    """Responds to the first bytes with its own, and closes the connection."""

    def __init__(self, response: bytes) -> None:
        self._response = response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._response)
        self._transport.close()


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
@pytest.mark.parametrize(
    ("response", "text"),
    [
        (HTTP, "does not respond like a Kafka broker: it speaks HTTP"),
        (TLS_ALERT, "does not respond like a Kafka broker: it speaks TLS, which this connection does not use"),
        (b"", "closed the connection without a response: is this the port of a Kafka broker"),
    ],
)
async def test_client_of_another_kind_of_server_raises_an_error_that_names_it(
    kind: Callable[[str], Any], response: bytes, text: str
) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: OtherServer(response), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = kind(address)
    with pytest.raises(NoBrokerReachable) as raised:
        await (client.list_topics() if isinstance(client, Admin) else client.start())
    assert address in str(raised.value)
    assert text in str(raised.value)
    await client.close()
    server.close()
