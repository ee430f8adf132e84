"""``ZooKeeperSecurity``: how a client of ZooKeeper knows the servers, who it is to them, and what it lets others do."""

import socket
import ssl
from dataclasses import dataclass
from typing import Final, Protocol

from oncelog.protocol.sasl.digest_login import DigestLogin


class ServerRefused(Exception):
    """Why this client and a server cannot work together, as they are configured. The message has the remedy."""


class SecureChannel(Protocol):
    """TLS to ZooKeeper. Its methods are called in a thread, and may block."""

    def secure(self, connection: socket.socket, host: str) -> ssl.SSLSocket:
        """Do the handshake with a server that has to be ``host``.

        Raises ``ServerRefused`` if it is not trusted, or does not trust this client; ``OSError`` if the connection
        ends or times out.
        """

    def explain(self, error: ssl.SSLError) -> str:
        """Return what an error means that comes after the handshake, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    """What a connection to ZooKeeper is protected by."""

    tls: SecureChannel | None = None
    login: DigestLogin | None = None
    protects_znodes: bool = False
    """Whether znodes are created for the user of this client; it needs a login, or a certificate of its own."""


UNPROTECTED: Final = ZooKeeperSecurity()
