"""Subjects as Java prints them: the expected texts come from Java's ``X500Principal``."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from oncelog.protocol.tls.distinguished_name import subject_of

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate_of(name: x509.Name) -> bytes:
    now = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 1, now, now + datetime.timedelta(days=1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def simple(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            simple(
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.ORGANIZATION_NAME, "Acme"),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "clients"),
                (NameOID.COMMON_NAME, "Alice"),
            ),
            "CN=Alice,OU=clients,O=Acme,C=DE",
        ),
        (simple((NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')), 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        (simple((NameOID.COMMON_NAME, "  two  ")), "CN=\\ \\ two\\ \\ "),
        (simple((NameOID.COMMON_NAME, "  ")), "CN=\\ \\ "),
        (simple((NameOID.COMMON_NAME, "Jürgen Ж")), "CN=Jürgen Ж"),
        (
            simple((NameOID.COMMON_NAME, "x"), (NameOID.EMAIL_ADDRESS, "a@b.c")),
            "1.2.840.113549.1.9.1=#16056140622e63,CN=x",
        ),
        (
            simple((NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u"), (NameOID.STREET_ADDRESS, "s")),
            "STREET=s,UID=u,DC=org",
        ),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName(
                        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "b")]
                    )
                ]
            ),
            "CN=a+UID=b",
        ),
        (x509.Name([]), ""),
    ],
)
def test_subject_has_javas_form(name: x509.Name, text: str) -> None:
    assert subject_of(certificate_of(name)) == text


def test_garbage_is_no_certificate() -> None:
    with pytest.raises(ValueError, match="error parsing asn1 value"):
        subject_of(b"\x30\x03\x02\x01\x01")
