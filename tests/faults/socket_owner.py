"""Which broker of a cluster has the other end of a connection: what the kernel says, since TLS hides what is sent."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")
_ESTABLISHED: Final = "01"
_LOCAL, _REMOTE, _STATE, _INODE = 1, 2, 3, 9
"""Columns of ``/proc/net/tcp``."""
_BROKER: Final = re.compile(rb"/broker-(\d+)\b")


class SocketGone(Exception):
    """The process that connected has closed the socket, or has ended."""


def broker_at(port: int, server_port: int, directory: Path) -> str | None:
    """Return the id of the broker that is connected from a local port to one of a server; None if it is none.

    The kernel gives a local port to several connections, to different servers. A broker is a process whose command line
    names its own directory in the cluster's. Raises ``SocketGone``.
    """
    inode = _inode_of(port, server_port)
    wanted = f"socket:[{inode}]"
    owner = next((name for name, process in _brokers(directory) if wanted in _descriptors(process)), None)
    if owner is None and _inode_of(port, server_port) != inode:
        raise SocketGone
    return owner


def _inode_of(port: int, server_port: int) -> str:
    """Return the inode of the socket of IPv4 that is connected from one port to the other. Raises ``SocketGone``."""
    suffix, server_suffix = f":{port:04X}", f":{server_port:04X}"
    for line in (_PROCESSES / "net" / "tcp").read_text().splitlines()[1:]:
        columns = line.split()
        ports_match = columns[_LOCAL].endswith(suffix) and columns[_REMOTE].endswith(server_suffix)
        if ports_match and columns[_STATE] == _ESTABLISHED:
            return columns[_INODE]
    raise SocketGone


def _brokers(directory: Path) -> Iterator[tuple[str, Path]]:
    """Return id and process directory of each broker that runs."""
    place = os.fsencode(directory)
    for process in _PROCESSES.iterdir():
        if not process.name.isdigit():
            continue
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:  # It has ended.
            continue
        match = _BROKER.search(command, command.find(place)) if place in command else None
        if match is not None:
            yield match[1].decode(), process


def _descriptors(process: Path) -> set[str]:
    found = set()
    try:
        for descriptor in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # Closed meanwhile.
                found.add(os.readlink(descriptor))
    except OSError:  # It has ended.
        pass
    return found
