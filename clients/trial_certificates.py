"""Certificates for a try-out: an authority of one's own, and certificates that it signs for brokers and clients.

Keys are of P-256: their handshakes cost less than those of RSA, and all clients know them. An authority for production
is a matter of its own, with a key that is kept elsewhere; what it signs is used in the same way.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)  # fmt: skip
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY: Final = "oncelog try-out authority"
_TOLERANCE: Final = datetime.timedelta(minutes=5)
"""Clocks of clients may be behind."""
_LOOPBACK: Final = ("127.0.0.1", "::1")
_LONGEST_NAME: Final = 64
"""RFC 5280, upper bound of a common name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedKey:
    """A private key and the certificate for it, each as PEM."""

    key: bytes = field(repr=False)
    certificate: bytes


def make_authority(now: datetime.datetime, days: int) -> SignedKey:
    """Return a new authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(_AUTHORITY)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return SignedKey(key=_pem(key), certificate=builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def sign_broker(authority: SignedKey, hosts: Sequence[str], now: datetime.datetime, days: int) -> SignedKey:
    """Return a certificate for a broker that clients reach by any of these names or addresses.

    It also serves for a broker as a client of others. Raises ``ValueError`` for what is no host.
    """
    names: list[x509.GeneralName] = [_general_name(host) for host in hosts]
    if "localhost" in hosts:
        names += [x509.IPAddress(ipaddress.ip_address(each)) for each in _LOOPBACK]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _sign(authority, hosts[0], x509.SubjectAlternativeName(dict.fromkeys(names)), usages, now, days)


def sign_client(authority: SignedKey, name: str, now: datetime.datetime, days: int) -> SignedKey:
    """Return a certificate for a client: its user is ``CN=name``. Raises ``ValueError`` for what cannot be a name."""
    return _sign(authority, name, None, [ExtendedKeyUsageOID.CLIENT_AUTH], now, days)


def _sign(
    authority: SignedKey,
    name: str,
    alternatives: x509.SubjectAlternativeName | None,
    usages: Sequence[x509.ObjectIdentifier],
    now: datetime.datetime,
    days: int,
) -> SignedKey:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(name), issuer.subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    signed = builder.sign(issuer_key, hashes.SHA256())
    return SignedKey(key=_pem(key), certificate=signed.public_bytes(Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _TOLERANCE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    if len(text) > _LONGEST_NAME:
        raise ValueError(f"{text!r} has more than {_LONGEST_NAME} characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
