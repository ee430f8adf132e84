"""The rate of connections of an address, and the number of those of a listener, on real sockets."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from oncelog.protocol.framing import encode_request
from tests.command import Oncelog
from tests.processes import OncelogProcess
from tests.simulation import requests

HELLO: Final = b"".join(encode_request(1, "test", requests.api_versions(), requests.API_VERSIONS_VERSION))


@contextmanager
def connected(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections that have each sent a request."""
    host, port = address.split(":")
    sockets = []
    try:
        for _ in range(count):
            sockets.append(socket.create_connection((host, int(port)), timeout=20))
            sockets[-1].sendall(HELLO)
        yield sockets
    finally:
        for each in sockets:
            each.close()


def has_response(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(4))
    except ConnectionResetError:
        return False


def test_connections_over_the_rate_of_an_address_are_closed_unserved_within_a_second(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as broker:
        Oncelog(broker.address)("quota set --default-ip --connection-creation-rate 2")
        began = time.perf_counter()
        with connected(broker.address, 30) as sockets:
            served = [has_response(each) for each in sockets]
        assert served == [True] * 20 + [False] * 10
        assert 0.3 < time.perf_counter() - began < 3


def test_connections_beyond_those_of_a_listener_are_closed(tmp_path: Path) -> None:
    limit = "listener.name.plaintext.max.connections=10"
    with OncelogProcess(tmp_path, [limit]) as broker, connected(broker.address, 14) as sockets:
        assert sum(has_response(each) for each in sockets) == 10
