"""Certificates for tests, made when they are needed: single ones as files, by openssl, and authorities in memory."""

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_key_and_certificates
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that stands for itself, and its private key, as PEM files; ``both`` has the two in one."""

    certificate: Path
    key: Path
    both: Path


def make_certificate(directory: Path, name: str, alternative: str = "IP:127.0.0.1") -> Certificate:
    made = Certificate(directory / f"{name}.crt", directory / f"{name}.key", directory / f"{name}.pem")
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    made.both.write_text(made.key.read_text() + made.certificate.read_text())
    return made


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificate, with the authority that issued it; None for one that stands for itself."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: "Identity | None" = None

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def chain_pem(self) -> bytes:
        """The certificate, and those of its issuers up to the one that stands for itself, which is left out."""
        issuer = self.issuer
        above = b"" if issuer is None or issuer.issuer is None else issuer.chain_pem
        return self.certificate_pem + above

    def key_pem(self, password: str | None = None) -> bytes:
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def pem(self, password: str | None = None) -> bytes:
        return self.key_pem(password) + self.chain_pem

    def pkcs12(self, password: str) -> bytes:
        """A key store with the whole chain, as keytool writes it."""
        above, issuer = [], self.issuer
        while issuer is not None:
            above.append(issuer.certificate)
            issuer = issuer.issuer
        encryption = BestAvailableEncryption(password.encode())
        return serialize_key_and_certificates(b"mykey", self.key, self.certificate, above, encryption)

    def issue(self, name: str, alternative: str = "127.0.0.1", *, days: tuple[int, int] = (-1, 2)) -> "Identity":
        """An identity that this one answers for, valid from and to these days from now."""
        return _identity(name, alternative, self, days, is_authority=False)

    def issue_authority(self, name: str) -> "Identity":
        return _identity(name, None, self, (-1, 2), is_authority=True)


def without_bytes(value: object) -> str | None:
    """The id of a parameter: bytes of stores are drawn anew in each process, and ids have to be equal in all."""
    return "store" if isinstance(value, bytes) else None


def make_authority(name: str) -> Identity:
    return _identity(name, None, None, (-1, 2), is_authority=True)


def trust_store_of_keytool(*identities: Identity, password: str) -> bytes:
    """PKCS#12 as ``keytool -importcert`` writes it: no key, and a bag with a friendly name for each certificate."""
    bags = [PKCS12Certificate(each.certificate, b"alias-%d" % place) for place, each in enumerate(identities)]
    return serialize_key_and_certificates(None, None, None, bags, BestAvailableEncryption(password.encode()))


def _identity(
    name: str, alternative: str | None, issuer: Identity | None, days: tuple[int, int], *, is_authority: bool
) -> Identity:
    key = generate_private_key(SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)  # noqa: TID251  # Certificates are judged by the clock of the machine.
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if alternative is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(alternative)]), critical=False)
    return Identity(key, builder.sign(key if issuer is None else issuer.key, SHA256()), issuer)


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
