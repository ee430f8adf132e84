"""The unacknowledged bytes of a socket's send queue, by the kernel."""

import socket
import sys

import pytest

from oncelog.broker.dispatch.request import NO_SOCKET
from oncelog.broker.network.socket_queues import round_trip_seconds, unacknowledged_bytes

MOST_READS = 1_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not report it")
def test_bytes_that_the_other_end_does_not_read_are_counted_until_it_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        with socket.create_connection(server.getsockname()) as sender, server.accept()[0] as receiver:
            assert unacknowledged_bytes(sender.fileno()) == 0
            sender.setblocking(False)
            sent = 0
            try:
                while True:
                    sent += sender.send(bytes(16 * 1024))
            except BlockingIOError:
                stuck = unacknowledged_bytes(sender.fileno())
            assert 0 < stuck <= sent
            received = 0
            for _ in range(MOST_READS):
                received += len(receiver.recv(1 << 20))
                if received == sent:
                    break
            assert received == sent
            assert unacknowledged_bytes(sender.fileno()) < stuck


def test_simulated_connection_has_no_such_bytes() -> None:
    assert unacknowledged_bytes(NO_SOCKET) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is known there")
def test_round_trip_is_known_of_a_tcp_connection_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert 0 < round_trip_seconds(client.fileno()) < 1
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert round_trip_seconds(ours.fileno()) == 0
    assert round_trip_seconds(NO_SOCKET) == 0
