"""``make bench-security``: what TLS and access control cost, beside Apache Kafka with TLS.

One broker of ours and one of Apache Kafka 4, each with a listener with TLS 1.3 and one without, and the same
certificate; rounds alternate, and every measurement runs in a process of its own. The table shows medians and ratios.
Then the time of one decision by 10,000 access control lists.
"""

import os
import random
import socket
import ssl
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from oncelog.broker.dispatch.request import ConnectionInfo, Principal, RequestContext
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from tests.benchmarks import librdkafka, wire
from tests.benchmarks.side_by_side import (
    Contender,
    Figures,
    Measured,
    Measurements,
    create_topic,
    isolated,
    percentile,
    run,
)
from tests.command import Oncelog
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess, free_port

MODULE: Final = "tests.benchmarks.security_side_by_side"
_WARM_UP: Final = "warm-up"
_PARTITIONS: Final = 6
_HANDSHAKES: Final = 200
_DECIDERS: Final = 5
_PASSES: Final = 10
_LISTS: Final = 10_000


class Places:
    """Where the two listeners of a broker are, as one text for the command line."""

    def __init__(self, text: str) -> None:
        self.plain, self.secured, self.authority = text.split("|")

    def settings(self, *, tls: bool) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": self.authority} if tls else {}

    def address(self, *, tls: bool) -> str:
        return self.secured if tls else self.plain

    def connected(self, *, tls: bool) -> socket.socket:
        host, _, port = self.address(tls=tls).rpartition(":")
        plain = socket.create_connection((host, int(port)))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not tls:
            return plain
        context = ssl.create_default_context(cafile=self.authority)
        return context.wrap_socket(plain, server_hostname=host)


def measure_throughput(text: str, round_number: int, *, tls: bool, size: int = 1_000, count: int = 300_000) -> Figures:
    """One librdkafka producer and one consumer, 1 kB a record."""
    places, label = Places(text), "TLS" if tls else "plain"
    topic = f"throughput-{label}-{round_number}"
    create_topic(places.plain, topic, _PARTITIONS)
    settings = places.settings(tls=tls)
    produced = librdkafka.produce(places.address(tls=tls), topic, size=size, count=count, **settings)
    consumed = librdkafka.consume(places.address(tls=tls), topic, partitions=_PARTITIONS, count=count, **settings)
    scale = size * count / 1e6
    return {f"produce, {label}, MB/s": scale / produced, f"consume, {label}, MB/s": scale / consumed}


def measure_requests(text: str, round_number: int, *, tls: bool, count: int = 3_000) -> Figures:
    """One request of one record of 100 B at a time."""
    places, label = Places(text), "TLS" if tls else "plain"
    topic = f"requests-{label}-{round_number}"
    create_topic(places.plain, topic, 1)
    frame = wire.produce_frame(topic, bytes(100), -1)
    latencies = []
    with places.connected(tls=tls) as connection:
        for _ in range(count):
            started = time.perf_counter()
            connection.sendall(frame)
            connection.recv(65_536)
            latencies.append(time.perf_counter() - started)
    latencies.sort()
    return {
        f"produce p50, {label}, ms": percentile(latencies, 0.5) * 1e3,
        f"produce p99, {label}, ms": percentile(latencies, 0.99) * 1e3,
    }


def measure_handshakes(text: str, round_number: int) -> Figures:
    """Connections one after the other."""
    places = Places(text)
    started = time.perf_counter()
    for _ in range(_HANDSHAKES):
        places.connected(tls=True).close()
    return {"handshakes, 1/s": _HANDSHAKES / (time.perf_counter() - started)}


def measure_warm_up(text: str, round_number: int) -> Figures:
    """Nothing: a JVM compiles what it runs often."""
    for tls in (False, True):
        measure_throughput(text, -1, tls=tls)
        measure_requests(text, -1, tls=tls)
    return {}


MEASUREMENTS: Measurements = {
    _WARM_UP: measure_warm_up,
    "throughput-plain": partial(measure_throughput, tls=False),
    "throughput-tls": partial(measure_throughput, tls=True),
    "requests-plain": partial(measure_requests, tls=False),
    "requests-tls": partial(measure_requests, tls=True),
    "handshakes": measure_handshakes,
}


class Decider:
    """An authorizer with 10,000 lists of one user, and a request of that user."""

    def __init__(self) -> None:
        self._authorizer = AclAuthorizer(frozenset({("User", "admin")}))
        entry = AccessControlEntry("User:alice", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
        names = [f"topic-{number}" for number in range(_LISTS)]
        self._authorizer.change(
            {ResourcePattern(AclResourceType.TOPIC, name, PatternType.LITERAL): frozenset({entry}) for name in names}
        )
        random.Random(1).shuffle(names)
        self._names = names
        info = ConnectionInfo(client_host="127.0.0.1", listener_name="SSL", principal=Principal("User", "alice"))
        self._context = RequestContext(9, 1, "client", info)

    def microseconds(self) -> float:
        """Return the processor time of one decision, each about another topic, with a new string as a request has."""
        names = [name.encode().decode() for name in self._names]
        authorize, context = self._authorizer.authorize, self._context
        started = time.process_time()
        for name in names:
            authorize(context, AclOperation.WRITE, AclResourceType.TOPIC, name)
        return (time.process_time() - started) / _LISTS * 1e6


def print_decisions() -> None:
    """Print the processor time of a decision that is made for the first time after a change of the lists, and then."""
    deciders = [Decider() for _ in range(_DECIDERS)]
    first = statistics.median(decider.microseconds() for decider in deciders)
    again = statistics.median(decider.microseconds() for decider in deciders for _ in range(_PASSES))
    print(f"\none decision by {_LISTS} access control lists: {again:.2f} µs; the first about a topic: {first:.2f} µs")


def brokers(folder: Path) -> dict[BrokerProcess, str]:
    """Return the two brokers with the texts of their places."""
    certificates = folder / "certificates"
    Oncelog("")(f"tls init {certificates}")
    stores = [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates / 'broker-localhost.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates / 'ca.pem'}",
    ]
    ours, theirs = OncelogProcess(folder / "oncelog"), KafkaProcess(folder / "kafka")
    found: dict[BrokerProcess, str] = {}
    for broker in (ours, theirs):
        port = free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{broker.port},SSL://localhost:{port}"
        controller = f",CONTROLLER://127.0.0.1:{theirs.controller_port}" if broker is theirs else ""
        mapped = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
        broker.settings = [
            *stores, f"listeners={listeners}{controller}", f"advertised.listeners={listeners}", mapped
        ]  # fmt: skip
        found[broker] = f"127.0.0.1:{broker.port}|localhost:{port}|{certificates / 'ca.pem'}"
    return found


def print_ratios(ours: Measured, theirs: Measured) -> None:
    print(f"\n{os.cpu_count()} cores; medians\n\n{'':30}{ours.name:>10}{theirs.name:>10}{'ratio':>8}")
    for name, values in ours.figures.items():
        mine, other = statistics.median(values), statistics.median(theirs.figures[name])
        print(f"{name:30}{mine:10.2f}{other:10.2f}{mine / other:8.2f}")


def compare(rounds: int, only: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name, ExitStack() as stack:
        places = brokers(Path(name))
        contenders = [(Contender(stack.enter_context(broker)), text) for broker, text in places.items()]
        for _, text in contenders:
            isolated(_WARM_UP, text, 0, module=MODULE)
        for measurement in only or [each for each in MEASUREMENTS if each != _WARM_UP]:
            for round_number in range(rounds):
                for contender, text in contenders:
                    figures = isolated(measurement, text, round_number, module=MODULE)
                    print(f"{contender.name} {measurement} {round_number}: {figures}", file=sys.stderr)
                    contender.add(figures)
        print_ratios(*(contender for contender, _ in contenders))
    print_decisions()


if __name__ == "__main__":
    run(__doc__, MEASUREMENTS, compare)
