"""Ports of the brokers that tests start: a port belongs to one test process until that process ends."""

import random
import socket

import pytest

from oncelog.broker.local_cluster.layout import free_ports
from tests.processes import free_port


def test_free_port_is_not_given_to_another_process() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    assert port not in set(free_ports(random.Random()))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_server_may_listen_at_a_free_port_and_again_after_it_ended(host: str) -> None:
    port = free_port()
    for _ in range(2):
        with (
            socket.create_server((host, port)),
            socket.create_connection(("127.0.0.1", port)) as client,
        ):
            assert client.getpeername() == ("127.0.0.1", port)


def test_free_port_refuses_connections_while_no_server_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port()))
