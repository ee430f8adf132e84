"""How long an ordinary client waits for its records: ``python -m tests.hostile.secured_prober PORT CERTIFICATES``.

A process of its own. It is authenticated over TLS, produces one record a few milliseconds after each response, and
keeps all response times. Each line on standard input ends a measurement and begins the next one; the reply is one line
of JSON. End of input ends the process.
"""

import json
import os
import select
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from oncelog.protocol.framing import encode_request
from oncelog.protocol.topic_partition import TopicPartition
from tests.hostile.prober import exchange
from tests.hostile.secured_broker import ORDINARY, login, trusting
from tests.simulation.requests import batch, produce

_VERSION: Final = 9
_PACE_SECONDS: Final = 0.004
_PATIENCE_SECONDS: Final = 120.0


def percentile(waits: Sequence[float], part: float) -> float:
    """Return one of the waits; 0 if there are none."""
    ordered = sorted(waits)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0.0


def _report(waits: Sequence[float]) -> str:
    """The figures in seconds."""
    return json.dumps({
        "p50": percentile(waits, 0.5),
        "p99": percentile(waits, 0.99),
        "longest": max(waits, default=0.0),
        "requests": len(waits),
    })  # fmt: skip


def _connect(port: int, authority: Path) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return trusting(authority).wrap_socket(plain, server_hostname="localhost")


def main(port: int, authority: Path) -> None:
    records = produce(TopicPartition(ORDINARY, 0), batch([b"a record"]))
    request = b"".join(encode_request(3, ORDINARY, records, _VERSION))
    commands = sys.stdin.fileno()
    waits: list[float] = []
    with _connect(port, authority) as connection:
        for part in login(ORDINARY, ORDINARY):
            exchange(connection, part)
        while True:
            began = perf_counter()
            exchange(connection, request)
            waits.append(perf_counter() - began)
            readable, _, _ = select.select([commands], [], [], _PACE_SECONDS)
            if readable:
                if not os.read(commands, 100):
                    break
                print(_report(waits), flush=True)
                waits.clear()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
