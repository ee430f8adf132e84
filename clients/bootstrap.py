"""The addresses at which a client begins: ``host:port,host:port``. Pure."""

import re
from ipaddress import IPv6Address
from typing import Final

from oncelog.clients.connection import Address

DEFAULT_PORT: Final = 9092
_LAST_PORT: Final = 65535
_PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})
_SEPARATOR: Final = re.compile(r"[;\s|]")

_NOT_IN_HOST: Final = re.compile(r"[/\\?#@\[\]]")
_EXAMPLE: Final = f"pass HOST:PORT, such as localhost:{DEFAULT_PORT}"


def parse_bootstrap(text: str) -> list[Address]:
    """Parse ``host:port,host,[v6]:port,PLAINTEXT://host:port``. ValueError names the part that is none of these."""
    addresses = [_parse_address(part) for part in filter(None, (part.strip() for part in text.split(",")))]
    if not addresses:
        raise ValueError(f"no address of a broker: {_EXAMPLE}")
    return addresses


def _parse_address(part: str) -> Address:
    shown = repr(_without_credentials(part))
    if _SEPARATOR.search(part):
        raise ValueError(f"{shown} is not HOST:PORT; several addresses are separated by commas: HOST:PORT,HOST:PORT")
    protocol, has_protocol, place = part.rpartition("://")
    if has_protocol and protocol.upper() in _PROTOCOLS:
        raise ValueError(f"{shown}: leave out {protocol}://; it is the setting security.protocol={protocol.upper()}")
    if has_protocol and protocol.upper() != _PLAINTEXT:
        raise ValueError(f"{shown} is not HOST:PORT: an address has no {protocol}:// in front")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(DEFAULT_PORT)
    if place.count(":") > 1 and not host.startswith("["):
        raise ValueError(f"{shown} is not HOST:PORT: an IPv6 address stands in brackets, such as [::1]:{DEFAULT_PORT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not _is_host(host) or not port.isdecimal():
        raise ValueError(f"{shown} is not HOST:PORT: {_EXAMPLE}")
    if not 0 < int(port) <= _LAST_PORT:
        raise ValueError(f"{shown}: there is no port {port}; ports are 1 to {_LAST_PORT}")
    return Address(host, int(port))


def _without_credentials(part: str) -> str:
    """Return a part as errors show it: what stands before an ``@`` may be a password."""
    _, at, place = part.rpartition("@")
    return f"…@{place}" if at else part


def _is_host(text: str) -> bool:
    """Return whether it is an IPv6 address, or a name service can resolve it: its labels are not empty or too long."""
    if _NOT_IN_HOST.search(text):
        return False
    try:
        return bool(IPv6Address(text)) if ":" in text else bool(text.encode("idna"))
    except ValueError:  # UnicodeError of the codec included.
        return False
