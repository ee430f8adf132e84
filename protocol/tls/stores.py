"""Private keys and certificates, from the contents of the files that Kafka's ``ssl.*`` settings name. Pure.

A *key store* has a private key and its certificates: who one is. A *trust store* has the certificates of those who are
trusted. Either is PEM text or PKCS#12, as its first bytes say; ``ssl.keystore.type`` need not. PEM is what OpenSSL,
certificate authorities and Kubernetes hand out: in a key store a key and its certificates stand in one file. PKCS#12 is
what Java's ``keytool`` writes since Java 9. Java's older formats are refused with the command that converts them.

Neither messages nor representations contain a password or a private key. The library ``cryptography`` is loaded by the
first call, so that a process without TLS does not load it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from oncelog.protocol.tls.pem import LONGEST_LINE, Block, parse_pem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

StoreType = Literal["PEM", "PKCS12"]

_JAVA_STORES: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_REWRITE_STORE: Final = "`keytool -importkeystore -srckeystore FILE -destkeystore store.p12 -deststoretype PKCS12`"
_CONVERT_CERTIFICATE: Final = "`openssl x509 -inform DER -in FILE -out certificate.pem`"
_CONVERT_KEY: Final = "`openssl pkcs8 -topk8 -in FILE -out key.pem`"
_FORM: Final = f" (in lines of its own, of {LONGEST_LINE} characters at most)"
_CERTIFICATE_LABELS: Final = (b"CERTIFICATE", b"X509 CERTIFICATE")
_ENCRYPTED_LABEL: Final = b"ENCRYPTED PRIVATE KEY"
_ENCRYPTED_BODY: Final = b"Proc-Type: 4,ENCRYPTED"
"""In a key of OpenSSL's older form, whose label is that of a key that is not encrypted."""
_SEQUENCE: Final = 0x30
_VERSION_3: Final = b"\x02\x01\x03"
"""The number with which PKCS#12 begins, behind the tag and the length of the whole."""
_LONG_LENGTH: Final = 0x80


class StoreError(ValueError):
    """A store that cannot be used. The message says why, and the remedy; it contains no password and no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMaterial:
    """A private key and its certificates."""

    private_key: bytes = field(repr=False)
    """PEM of PKCS#8, not encrypted."""
    certificates: tuple[bytes, ...]
    """Each in PEM: that of the key, then that of its issuer, and so on."""


def store_type(data: bytes) -> StoreType:
    """Return what a store is, from its first bytes. Raises ``StoreError`` for what cannot be read."""
    java = _JAVA_STORES.get(data[:4])
    if java is not None:
        raise StoreError(f"is a key store of Java ({java}), which is not read: convert it, {_REWRITE_STORE}")
    if data[:1] == b"\x30":
        if _is_pkcs12(data):
            return "PKCS12"
        raise StoreError(f"is DER and no PKCS#12: if it is a certificate, convert it to PEM, {_CONVERT_CERTIFICATE}")
    if b"-----BEGIN " in data and b"\0" not in data:
        return "PEM"
    raise StoreError("is empty" if not data.strip() else "is no PEM and no PKCS#12")


def require_nothing_else(data: bytes) -> None:
    """Raise ``StoreError`` if a file in PEM has more than a store: then others may write into it, as into a log."""
    if store_type(data) == "PEM":
        line = parse_pem(data).foreign_line
        if line:
            raise StoreError(
                f"has more than a store in line {line}: only PEM, comments (#) and what OpenSSL writes of a PKCS#12 "
                "store may stand in it"
            )


def read_key_store(data: bytes, *, store_password: str | None = None, key_password: str | None = None) -> KeyMaterial:
    """Return the private key of a store with its certificates. Raises ``StoreError``.

    A PEM file has no password of its own, only its key may have one; PKCS#12 has one for both.
    """
    if store_type(data) == "PEM":
        _refuse_store_password(store_password)
        return _from_pem(data, key_password)
    if store_password is not None and key_password is not None and store_password != key_password:
        raise StoreError(
            "is PKCS#12, which has one password for the store and its key, and the two passwords are not equal: "
            "leave out ssl.key.password"
        )
    password = key_password if store_password is None else store_password
    return _from_pkcs12(_open_pkcs12(data, password, "ssl.keystore.password"))


def read_trust_store(data: bytes, *, store_password: str | None = None) -> tuple[bytes, ...]:
    """Return the certificates of a store, each in PEM. Raises ``StoreError``, also if there is none."""
    if store_type(data) == "PEM":
        _refuse_store_password(store_password)
        certificates = _pem_certificates(data)
    else:
        store = _open_pkcs12(data, store_password, "ssl.truststore.password")
        first = [] if store.cert is None else [store.cert.certificate]
        certificates = [*first, *(each.certificate for each in store.additional_certs)]
    if not certificates:
        raise StoreError(f"has no certificate{_FORM}: a trust store has those of the authorities that are trusted")
    return tuple(dict.fromkeys(map(_to_pem, certificates)))


def _is_pkcs12(data: bytes) -> bool:
    """Return whether DER is PKCS#12: a sequence that begins with the version number 3."""
    length = data[1] if len(data) > 1 else 0
    start = 2 + (length - _LONG_LENGTH if length > _LONG_LENGTH else 0)
    return data[start : start + len(_VERSION_3)] == _VERSION_3


def _blocks(data: bytes) -> tuple[Block, ...]:
    text = parse_pem(data)
    if text.broken_line:
        raise StoreError(
            f"has PEM that cannot be read from line {text.broken_line} on: between its BEGIN and its END line stands "
            f"base64 only, in lines of {LONGEST_LINE} characters at most"
        )
    return text.blocks


def _refuse_store_password(store_password: str | None) -> None:
    if store_password is not None:
        raise StoreError(
            "is PEM, which has no password for the store: leave that out. The password of an encrypted private key is "
            "ssl.key.password"
        )


# PEM


def _from_pem(data: bytes, key_password: str | None) -> KeyMaterial:
    keys = [found for found in _blocks(data) if found.label.endswith(b"PRIVATE KEY")]
    if not keys:
        raise StoreError(f"has no private key{_FORM}: a key store in PEM has the key and its certificates in one")
    if len(keys) > 1:
        raise StoreError(f"has {len(keys)} private keys: leave one")
    key = _load_pem_key(keys[0].pem, is_encrypted=_is_encrypted(keys[0]), password=key_password)
    certificates = _pem_certificates(data)
    if not certificates:
        raise StoreError(f"has no certificate{_FORM}: a key store in PEM has the key and its certificates in one")
    _require_match(key, certificates)
    return _material(key, certificates)


def _is_encrypted(block: Block) -> bool:
    return block.label == _ENCRYPTED_LABEL or _ENCRYPTED_BODY in block.pem


def _load_pem_key(pem: bytes, *, is_encrypted: bool, password: str | None) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if is_encrypted and not password:
        raise StoreError("has an encrypted private key: set ssl.key.password")
    if password is not None and not is_encrypted:
        raise StoreError("has a private key that is not encrypted: leave out ssl.key.password")
    try:
        return load_pem_private_key(pem, None if password is None else password.encode())
    except UnsupportedAlgorithm:
        raise StoreError(f"has a private key of a kind that is not supported: convert it, {_CONVERT_KEY}") from None
    except (ValueError, TypeError):  # Their texts are not shown: some quote the key.
        if is_encrypted:
            raise StoreError(
                "has a private key that cannot be decrypted: ssl.key.password is wrong, or the file is damaged"
            ) from None
        raise StoreError("has a private key that cannot be read: the file is damaged") from None


def _pem_certificates(data: bytes) -> list["Certificate"]:
    from cryptography.x509 import load_pem_x509_certificate

    blocks = [found.pem for found in _blocks(data) if found.label in _CERTIFICATE_LABELS]
    try:
        return [load_pem_x509_certificate(block) for block in blocks]
    except ValueError:
        raise StoreError("has a certificate that cannot be read: the file is damaged") from None


# PKCS#12


def _open_pkcs12(data: bytes, password: str | None, setting: str) -> "PKCS12KeyAndCertificates":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm:
        raise StoreError(
            f"is PKCS#12 with an algorithm that is not supported: write it anew, {_REWRITE_STORE}"
        ) from None
    except (ValueError, TypeError):
        if password is None:
            raise StoreError(f"is PKCS#12 and cannot be opened without its password: set {setting}") from None
        raise StoreError(
            f"is PKCS#12 and cannot be opened: its password ({setting}) is wrong, or the file is damaged"
        ) from None


def _from_pkcs12(store: "PKCS12KeyAndCertificates") -> KeyMaterial:
    if store.key is None:
        raise StoreError("is PKCS#12 without a private key: is it the trust store?")
    if store.cert is None:
        raise StoreError("is PKCS#12 without a certificate of its private key")
    return _material(store.key, [store.cert.certificate, *(each.certificate for each in store.additional_certs)])


# What both have in common


def _require_match(key: "PrivateKeyTypes", certificates: Sequence["Certificate"]) -> None:
    """Raise ``StoreError`` unless the first certificate is that of the key."""
    public = _public_bytes(key)
    place = next((place for place, each in enumerate(certificates, start=1) if _public_bytes(each) == public), None)
    if place is None:
        raise StoreError(
            "has a private key and certificates of other keys: the key and its certificate belong together"
        )
    if place != 1:
        raise StoreError(f"has the certificate of its private key in place {place}: it has to be the first")


def _material(key: "PrivateKeyTypes", certificates: Sequence["Certificate"]) -> KeyMaterial:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return KeyMaterial(
        private_key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificates=tuple(_to_pem(each) for each in _chain(certificates[0], certificates[1:])),
    )


def _chain(leaf: "Certificate", others: Sequence["Certificate"]) -> list["Certificate"]:
    """Return a certificate, its issuer, and so on, each once: what TLS sends. Others of the store are left out."""
    chain, left = [leaf], [each for each in dict.fromkeys(others) if each != leaf]
    while issuer := next((each for each in left if each.subject == chain[-1].issuer), None):
        chain.append(issuer)
        left.remove(issuer)
    return chain


def _public_bytes(of: "PrivateKeyTypes | Certificate") -> bytes | None:
    """Return a public key; None if it is of a kind that is not supported."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        return of.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (UnsupportedAlgorithm, ValueError):
        return None


def _to_pem(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
