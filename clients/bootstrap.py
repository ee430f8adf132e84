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


def parse_bootstrap(text: str) -> list[Address]:
    """Parse ``host:port,host,[v6]:port,PLAINTEXT://host:port``. ValueError names the part that is none of these."""
    addresses = [_parse_address(part) for part in filter(None, (part.strip() for part in text.split(",")))]
    if not addresses:
        raise ValueError("no HOST:PORT given")
    return addresses


def _parse_address(part: str) -> Address:
    if _SEPARATOR.search(part):
        raise ValueError(f"{part!r} is not HOST:PORT; several addresses are separated by commas: HOST:PORT,HOST:PORT")
    protocol, has_protocol, place = part.rpartition("://")
    if has_protocol and protocol.upper() in _PROTOCOLS:
        raise ValueError(f"{part!r}: only {_PLAINTEXT} listeners are supported: TLS and SASL are not supported yet")
    if has_protocol and protocol.upper() != _PLAINTEXT:
        raise ValueError(f"{part!r} is not HOST:PORT: an address has no {protocol}:// in front")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not _is_host(host) or not port.isdecimal():
        raise ValueError(f"{part!r} is not HOST:PORT")
    if not 0 < int(port) <= _LAST_PORT:
        raise ValueError(f"{part!r}: there is no port {port}; ports are 1 to {_LAST_PORT}")
    return Address(host, int(port))


def _is_host(text: str) -> bool:
    """Return whether it is an IPv6 address, or a name service can resolve it: its labels are not empty or too long."""
    try:
        return bool(IPv6Address(text)) if ":" in text else bool(text.encode("idna"))
    except ValueError:  # UnicodeError of the codec included.
        return False
