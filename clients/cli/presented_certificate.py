"""The certificate that a listener presents, for the words about one that is not accepted.

OpenSSL says that a name does not match, or that a time has passed, but not what the certificate has. ``oncelog doctor``
looks at it in a handshake of its own, which trusts every certificate, and sends nothing.
"""

import asyncio
import datetime
from dataclasses import dataclass
from typing import Final

from oncelog.clients.connection import Address
from oncelog.clients.tls import trusting_context
from oncelog.clients.tls_failures import Complaint
from oncelog.protocol.tls.distinguished_name import name_of

_MOST_NAMES: Final = 8
_TIME: Final = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedCertificate:
    """What of a certificate decides whether it is accepted."""

    names: tuple[str, ...]
    issuer: str
    not_before: datetime.datetime
    not_after: datetime.datetime

    def about(self, complaint: Complaint) -> str:
        """Return what the certificate has, where something else was wanted."""
        match complaint:
            case Complaint.NAME:
                shown = ", ".join(self.names[:_MOST_NAMES]) or "no name"
                return f"it has {shown}{', …' if len(self.names) > _MOST_NAMES else ''}"
            case Complaint.TIME:
                return f"it is valid from {self.not_before.strftime(_TIME)} to {self.not_after.strftime(_TIME)}"
            case Complaint.AUTHORITY:
                return f"it was issued by {self.issuer}"


async def presented_certificate(address: Address, seconds: float) -> PresentedCertificate | None:
    """Return the certificate of a listener; None if there is no handshake, or it cannot be read."""
    try:
        async with asyncio.timeout(seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, address.host, address.port, ssl=trusting_context()
            )
    except (OSError, ValueError):
        return None
    try:
        der = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        transport.abort()
    try:
        return None if der is None else read_certificate(der)
    except ValueError:
        return None


def read_certificate(der: bytes) -> PresentedCertificate:
    """Read a certificate. Raises ``ValueError``."""
    from cryptography import x509  # The library takes a while to load.

    certificate = x509.load_der_x509_certificate(der)
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names: tuple[str, ...] = ()
    else:
        addresses = map(str, alternatives.get_values_for_type(x509.IPAddress))
        names = (*alternatives.get_values_for_type(x509.DNSName), *addresses)
    return PresentedCertificate(
        names=names,
        issuer=name_of(certificate.issuer),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )
