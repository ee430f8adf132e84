"""Key stores and trust stores: what is read from them, and the sentence about each that cannot be used."""

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from oncelog.protocol.tls.stores import KeyMaterial, StoreError, read_key_store, read_trust_store, store_type
from tests.certificates import Identity, make_authority, make_certificate, trust_store_of_keytool, without_bytes

SECRET = "wonderland"
JKS = b"\xfe\xed\xfe\xed\x00\x00\x00\x02"
ROOT = make_authority("root")
MIDDLE = ROOT.issue_authority("middle")
OWN = MIDDLE.issue("own")
OTHER = ROOT.issue("other")


def is_key_of(material: KeyMaterial, identity: Identity) -> bool:
    key = load_pem_private_key(material.private_key, None)
    return key.public_key() == identity.key.public_key()


def legacy_encrypted() -> bytes:
    """A key in OpenSSL's older form, encrypted: its label does not say so."""
    command = ["openssl", "rsa", "-traditional", "-aes128", "-passout", f"pass:{SECRET}"]
    plain = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True).stdout
    return subprocess.run(command, input=plain, check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    ("data", "passwords", "chain"),
    [
        (OWN.pem(), {}, (OWN, MIDDLE)),
        (OWN.pem(SECRET), {"key_password": SECRET}, (OWN, MIDDLE)),
        (b"Bag Attributes\n" + OWN.chain_pem + b"\n# key\n" + OWN.key_pem(), {}, (OWN, MIDDLE)),
        (OWN.pem().replace(b"\n", b"\r\n"), {}, (OWN, MIDDLE)),
        (OWN.key_pem() + OWN.certificate_pem + OTHER.certificate_pem, {}, (OWN,)),
        (OWN.pem() + OWN.chain_pem, {}, (OWN, MIDDLE)),
        (OWN.pkcs12(SECRET), {"store_password": SECRET}, (OWN, MIDDLE, ROOT)),
        (OWN.pkcs12(SECRET), {"store_password": SECRET, "key_password": SECRET}, (OWN, MIDDLE, ROOT)),
        (OWN.pkcs12(SECRET), {"key_password": SECRET}, (OWN, MIDDLE, ROOT)),
    ],
    ids=without_bytes,
)
def test_key_store_has_the_key_and_its_chain(
    data: bytes, passwords: dict[str, str], chain: tuple[Identity, ...]
) -> None:
    material = read_key_store(data, **passwords)
    assert is_key_of(material, OWN)
    assert material.certificates == tuple(each.certificate_pem for each in chain)
    assert b"BEGIN PRIVATE KEY" in material.private_key
    assert "PRIVATE KEY" not in repr(material)


def test_key_store_in_the_older_form_of_openssl_is_read(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "own")
    traditional = subprocess.run(
        ["openssl", "rsa", "-traditional", "-in", str(made.key)], check=True, capture_output=True
    ).stdout
    assert b"BEGIN RSA PRIVATE KEY" in traditional
    material = read_key_store(traditional + made.certificate.read_bytes())
    assert len(material.certificates) == 1


@pytest.mark.parametrize(
    ("data", "passwords", "why"),
    [
        (b"", {}, "is empty"),
        (b"hello", {}, "is no PEM and no PKCS#12"),
        (JKS, {"store_password": SECRET}, "keytool -importkeystore -srckeystore FILE -destkeystore store.p12"),
        (b"\xce\xce\xce\xce", {}, "JCEKS"),
        (OWN.certificate.public_bytes(Encoding.DER), {}, "openssl x509 -inform DER"),
        (OWN.pem(), {"store_password": SECRET}, "is PEM, which has no password for the store"),
        (OWN.pem(), {"key_password": SECRET}, "is not encrypted: leave out ssl.key.password"),
        (OWN.pem(SECRET), {}, "set ssl.key.password"),
        (OWN.pem(SECRET), {"key_password": ""}, "set ssl.key.password"),
        (OWN.pem(SECRET), {"key_password": "x"}, "ssl.key.password is wrong"),
        (legacy_encrypted() + OWN.chain_pem, {}, "set ssl.key.password"),
        (legacy_encrypted() + OWN.chain_pem, {"key_password": SECRET}, "certificates of other keys"),
        (OWN.chain_pem, {}, "has no private key"),
        (OWN.key_pem(), {}, "has no certificate"),
        (OWN.key_pem() + OWN.pem(), {}, "has 2 private keys"),
        (OTHER.key_pem() + OWN.chain_pem, {}, "certificates of other keys"),
        (OWN.key_pem() + MIDDLE.certificate_pem + OWN.certificate_pem, {}, "in place 2: it has to be the first"),
        (OWN.pem().replace(b"PRIVATE KEY-----\nM", b"PRIVATE KEY-----\nX"), {}, "key that cannot be read"),
        (OWN.pem().replace(b"CERTIFICATE-----\nM", b"CERTIFICATE-----\nX"), {}, "certificate that cannot be read"),
        (OWN.pkcs12(SECRET), {}, "without its password: set ssl.keystore.password"),
        (OWN.pkcs12(SECRET), {"store_password": "x"}, r"\(ssl.keystore.password\) is wrong"),
        (OWN.pkcs12(SECRET), {"store_password": SECRET, "key_password": "x"}, "leave out ssl.key.password"),
        (OWN.pkcs12(SECRET)[:-60], {"store_password": SECRET}, "or the file is damaged"),
        (trust_store_of_keytool(ROOT, password=SECRET), {"store_password": SECRET}, "is it the trust store"),
    ],
    ids=without_bytes,
)  # fmt: skip
def test_key_store_that_cannot_be_used_is_refused_without_its_secrets(
    data: bytes, passwords: dict[str, str], why: str
) -> None:
    with pytest.raises(StoreError, match=why) as refused:
        read_key_store(data, **passwords)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize(
    ("data", "password", "trusted"),
    [
        (ROOT.certificate_pem + OTHER.certificate_pem, None, (ROOT, OTHER)),
        (ROOT.certificate_pem * 2, None, (ROOT,)),
        (trust_store_of_keytool(ROOT, OTHER, password=SECRET), SECRET, (ROOT, OTHER)),
        (OTHER.pkcs12(SECRET), SECRET, (OTHER, ROOT)),
    ],
    ids=without_bytes,
)
def test_trust_store_has_the_certificates(data: bytes, password: str | None, trusted: tuple[Identity, ...]) -> None:
    found = read_trust_store(data, store_password=password)
    assert sorted(found) == sorted(each.certificate_pem for each in trusted)


@pytest.mark.parametrize(
    ("data", "password", "why"),
    [
        (JKS, SECRET, "keytool -importkeystore"),
        (OWN.key_pem(), None, "has no certificate"),
        (ROOT.certificate_pem, SECRET, "is PEM, which has no password"),
        (ROOT.certificate_pem.replace(b"M", b"!", 3), None, "cannot be read"),
        (trust_store_of_keytool(ROOT, password=SECRET), None, "set ssl.truststore.password"),
        (trust_store_of_keytool(ROOT, password=SECRET), "x", r"\(ssl.truststore.password\) is wrong"),
    ],
    ids=without_bytes,
)
def test_trust_store_that_cannot_be_used_is_refused(data: bytes, password: str | None, why: str) -> None:
    with pytest.raises(StoreError, match=why) as refused:
        read_trust_store(data, store_password=password)
    assert SECRET not in str(refused.value)


def test_type_of_a_store_is_that_of_its_content() -> None:
    assert store_type(OWN.pem()) == "PEM"
    assert store_type(OWN.pkcs12(SECRET)) == "PKCS12"
    assert store_type(b"\x30\x80\x02\x01\x03\x30") == "PKCS12", "the length of BER that is not known in advance"


def test_stores_load_the_library_when_the_first_is_read() -> None:
    code = "import sys, oncelog.protocol.tls.stores; assert not any(m.startswith('cryptography') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
