"""How long a broker lets an ordinary client wait: ``python -m tests.hostile.prober PORT``, a process of its own.

It asks for ApiVersions on one connection, a few milliseconds after each response. Everything that a broker does runs
on one event loop, so the longest response time is the longest pause of that loop, plus what the machine made this
process wait. The latter is measured, too: by how much its own waits overran.

Each line on standard input ends a measurement and begins the next one; the reply is one line of JSON. End of input
ends the process.
"""

import json
import os
import select
import socket
import sys
import threading
from time import perf_counter
from typing import Final

from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest

_VERSION: Final = 3
_PACE_SECONDS: Final = 0.004
_PATIENCE_SECONDS: Final = 120.0


class Waits:
    """The longest waits since the last report, in seconds."""

    def __init__(self) -> None:
        self.response = 0.0
        self.overrun = 0.0
        self.requests = 0

    def report(self) -> str:
        return json.dumps({"response": self.response, "overrun": self.overrun, "requests": self.requests})


class _Overruns:
    """Measures in a thread how late this process is woken; the broker has no part in it."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="overruns", daemon=True)
        self._thread.start()

    def take(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        before = perf_counter()
        while not self._ended.wait(_PACE_SECONDS):
            now = perf_counter()
            self._longest = max(self._longest, now - before - _PACE_SECONDS)
            before = now


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, request: bytes) -> None:
    """Send one request and read its response whole."""
    connection.sendall(request)
    expected = int.from_bytes(_receive(connection, 4), "big")
    _receive(connection, expected)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection of an ordinary client")
        received += part
    return bytes(received)


def main(port: int) -> None:
    request = b"".join(encode_request(1, "prober", ApiVersionsRequest(), _VERSION))
    commands = sys.stdin.fileno()
    overruns, waits = _Overruns(), Waits()
    with _connect(port) as connection:
        while True:
            began = perf_counter()
            exchange(connection, request)
            waits.response = max(waits.response, perf_counter() - began)
            waits.requests += 1
            readable, _, _ = select.select([commands], [], [], _PACE_SECONDS)
            if readable:
                if not os.read(commands, 100):
                    break
                waits.overrun = overruns.take()
                print(waits.report(), flush=True)
                waits = Waits()
    overruns.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
