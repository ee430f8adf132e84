"""Which brokers a cluster's directory holds, and the ports of its processes: ``cluster.json``.

The first start that succeeds decides, and writes it down; later starts on the same directory find the same brokers at
the same ports, so that clients find them again. Brokers can be added, with a higher count, but never be left out:
partitions would lie on those that are missing.

Ports that the user did not choose are taken from below the range that the kernel gives to outgoing connections.
Otherwise a client's connection could have a stopped broker's port when it starts again, or even be connected to itself.
"""

import errno
import json
import random
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.broker.storage.disk import LocalDisk

FILE_NAME: Final = "cluster.json"
DEFAULT_BROKERS: Final = 3
DEFAULT_PORT: Final = 9092
_OWN_PORTS: Final = range(10_000, 32_000)


class LayoutError(Exception):
    """What cannot be, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One ZooKeeper, and brokers by their ids; all on loopback."""

    zookeeper_port: int
    broker_ports: Mapping[int, int]

    def encode(self) -> bytes:
        brokers = {str(broker_id): port for broker_id, port in self.broker_ports.items()}
        return json.dumps({"zookeeper_port": self.zookeeper_port, "brokers": brokers}, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "Layout":
        """Decode a layout. Raises ``LayoutError``."""
        try:
            found = json.loads(data)
            brokers = {int(broker_id): int(port) for broker_id, port in found["brokers"].items()}
            return cls(zookeeper_port=int(found["zookeeper_port"]), broker_ports=brokers)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LayoutError(f"{FILE_NAME} cannot be understood: {error!r}") from None


def plan_layout(
    kept: Layout | None, *, brokers: int | None, port: int | None, free_ports: Callable[[], Iterator[int]]
) -> Layout:
    """Return the layout to start: ``kept`` is that of earlier starts, None what the user left open. Port 0: any."""
    known = {} if kept is None else dict(kept.broker_ports)
    count = brokers or len(known) or DEFAULT_BROKERS
    if count < len(known):
        raise LayoutError(f"the directory holds {len(known)} brokers, and partitions on them: --brokers can only grow")
    ids = range(1, count + 1)
    wanted = DEFAULT_PORT if kept is None and port is None else port
    if wanted and wanted + count - 1 > 65_535:
        raise LayoutError(f"--port {wanted} leaves no room for {count} brokers")
    given = {broker_id: wanted + broker_id - 1 for broker_id in ids} if wanted else known
    taken = {*given.values(), *([] if kept is None else [kept.zookeeper_port])}
    free = (each for each in free_ports() if each not in taken)
    return Layout(
        zookeeper_port=next(free) if kept is None else kept.zookeeper_port,
        broker_ports={broker_id: given[broker_id] if broker_id in given else next(free) for broker_id in ids},
    )


def read_layout(directory: Path) -> Layout | None:
    """Return what earlier starts decided; None before the first. Raises ``LayoutError``."""
    path = str(directory / FILE_NAME)
    disk = LocalDisk()
    return Layout.decode(disk.read(path)) if disk.exists(path) else None


def write_layout(directory: Path, layout: Layout) -> None:
    LocalDisk().write_atomic(str(directory / FILE_NAME), layout.encode())


def free_ports(rng: random.Random) -> Iterator[int]:
    """Yield ports of loopback that no process listens at now, each once."""
    for port in rng.sample(_OWN_PORTS, len(_OWN_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


def check_ports(layout: Layout, elsewhere: Collection[int] = ()) -> None:
    """Raise ``LayoutError`` if another process listens at a port of the layout.

    ``elsewhere``: the brokers that listen at addresses of their own settings instead.
    """
    ports = [port for broker_id, port in layout.broker_ports.items() if broker_id not in elsewhere]
    taken = [str(port) for port in ports if _is_taken(port)]
    if taken:
        are = "port {} is" if len(taken) == 1 else "ports {} are"
        raise LayoutError(
            f"{are.format(', '.join(taken))} taken by another process, and nothing was started: choose others with "
            f"`oncelog cluster --port N`, which takes {len(layout.broker_ports)} from N on"
        )
    if _is_taken(layout.zookeeper_port):
        raise LayoutError(
            f"port {layout.zookeeper_port}, which {FILE_NAME} has for ZooKeeper, is taken by another process, and "
            "nothing was started: end that process, or choose another directory with `oncelog cluster --dir DIR`"
        )


def _is_taken(port: int) -> bool:
    """Return whether a process listens at a port of loopback. One whose connections have just ended is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
