"""The subject of a certificate as the text that Kafka has: RFC 2253 in Java's form.

``CN=Alice,OU=clients,O=Acme``: the last part first. Attributes that RFC 2253 does not name have their number, and their
value in hexadecimal of DER, such as ``1.2.840.113549.1.9.1=#16056140622e63`` for an address of mail. OpenSSL and Python
print other forms, so a name that is pasted from them may equal none.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.x509 import Name

_NAMED: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""RFC 2253, 2.3."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_MANY_LENGTH_BYTES: Final = 0x80


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises ``ValueError`` if it is none."""
    from cryptography import x509  # Only a client with a certificate pays for it.

    return name_of(x509.load_der_x509_certificate(certificate).subject)


def name_of(name: "Name") -> str:
    """Return the text of a subject, or of an issuer."""
    values = _values(name.public_bytes())
    parts = [
        "+".join(_attribute(each.oid.dotted_string, each.value, next(values)) for each in rdn) for rdn in name.rdns
    ]
    return ",".join(reversed(parts))


def _attribute(oid: str, value: str | bytes, der: bytes) -> str:
    label = _NAMED.get(oid)
    if label is None or isinstance(value, bytes):
        return f"{label or oid}=#{der.hex()}"
    return f"{label}={_escape(value)}"


def _escape(value: str) -> str:
    escaped = ["\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in value]
    inner = value.strip(" ")
    begin = len(value) - len(value.lstrip(" "))
    for index in (*range(begin), *range(begin + len(inner), len(value))):
        escaped[index] = "\\ "
    return "".join(escaped)


def _values(name: bytes) -> Iterator[bytes]:
    """Yield the values of a name's attributes, as they are encoded (RFC 5280, 4.1.2.4: a sequence of sets of pairs)."""
    for relative in _contents(_inner(name)):
        for pair in _contents(_inner(relative)):
            _, value = _contents(_inner(pair))
            yield value


def _contents(data: bytes) -> Iterator[bytes]:
    """Yield the elements of DER that stand one behind the other."""
    while data:
        begin, size = _extent(data)
        yield data[: begin + size]
        data = data[begin + size :]


def _inner(element: bytes) -> bytes:
    return element[_extent(element)[0] :]


def _extent(element: bytes) -> tuple[int, int]:
    """Return where the content of the first element begins, and its size."""
    first = element[1]
    if first < _MANY_LENGTH_BYTES:
        return 2, first
    begin = 2 + first - _MANY_LENGTH_BYTES
    return begin, int.from_bytes(element[2:begin], "big")
