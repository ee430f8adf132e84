"""How a ZooKeeper ensemble is reached, and how a session with it is taken over."""

from typing import NamedTuple


class SessionCredentials(NamedTuple):
    """What another client needs to take a session over."""

    session_id: int
    password: bytes


class ConnectString(NamedTuple):
    """``host:port,host:port/chroot``, in its parts; the chroot is empty or begins with a slash."""

    hosts: str
    chroot: str

    @classmethod
    def parse(cls, text: str) -> "ConnectString":
        hosts, slash, chroot = text.partition("/")
        return cls(hosts.strip(), (slash + chroot).rstrip("/"))
