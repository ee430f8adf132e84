"""Whether a server that ends a connection at once expects TLS, or expects none.

A server of ZooKeeper closes a connection that does not begin as it expects, without a word. A second connection that
begins in the other way shows what is wrong. Both functions block, for as many seconds at most.
"""

import socket
import ssl
from typing import Final, TypeAlias

Address: TypeAlias = tuple[str, int]

_ARE_YOU_OK: Final = b"ruok"
"""A server without TLS responds to this command, also where it is not allowed."""
_TLS_RECORDS: Final = range(0x14, 0x19)
"""First bytes of TLS."""


def speaks_tls(address: Address, seconds: float) -> bool:
    """Return whether a server responds to a TLS handshake. Nothing is sent to it after that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(address, seconds) as connection, context.wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def speaks_plain_text(address: Address, seconds: float) -> bool:
    """Return whether a server responds to a command of ZooKeeper without TLS."""
    try:
        with socket.create_connection(address, seconds) as connection:
            connection.sendall(_ARE_YOU_OK)
            said = connection.recv(1)
    except OSError:
        return False
    return bool(said) and said[0] not in _TLS_RECORDS
