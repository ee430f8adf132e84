"""How a ZooKeeper ensemble is reached, and how a session with it is taken over."""

from collections.abc import Iterator
from typing import Final, NamedTuple

ROOT: Final = "/"


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

    @property
    def has_several_hosts(self) -> bool:
        return "," in self.hosts

    def with_chroot(self, path: str) -> str:
        """Return the path at the servers of a path below the chroot."""
        return (self.chroot + path).rstrip("/") or ROOT

    def without_chroot(self, path: str) -> str:
        """Return the path below the chroot of a path at the servers."""
        return path.removeprefix(self.chroot) or ROOT

    def chroot_znodes(self) -> Iterator[str]:
        """Yield the paths at the servers of the chroot's znodes, parents first."""
        parts = self.chroot.split("/")[1:]
        for count in range(1, len(parts) + 1):
            yield "/" + "/".join(parts[:count])
