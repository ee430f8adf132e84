"""What a client needs to know for TLS, as values: whom it trusts, who it is, and which versions it speaks.

``TlsSettings.make_context`` reads the files and makes the context of OpenSSL. The functions below it change a context,
and the broker uses them for its listeners.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from oncelog.clients.setting_error import SettingError
from oncelog.protocol.tls.pem import unfold
from oncelog.protocol.tls.settings import VERSIONS
from oncelog.protocol.tls.stores import KeyMaterial, StoreError, read_key_store, read_trust_store, store_type

_LONGEST: Final = 1 << 24
_KAFKAS_NAME: Final = re.compile(r"\bssl(?:\.[a-z]+)+")
_IN_OPENSSL: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Hashable and picklable; ``make_context`` reads the files. Its text contains no password and no key."""

    trusted_file: str | None = None
    """Certificates of authorities, PEM or PKCS#12; without these two those that the system trusts."""
    trusted_text: str | None = None
    """The same, in PEM."""
    trusted_password: str | None = field(default=None, repr=False)
    """The password of ``trusted_file``, if that is PKCS#12."""
    trusted_type: str | None = None
    """What ``trusted_file`` has to be, PEM or PKCS12; None: what it is."""
    own_file: str | None = None
    """A private key and its certificates, PEM or PKCS#12, for brokers that authenticate clients."""
    own_key: str | None = field(default=None, repr=False)
    """The private key in PEM, in place of ``own_file``."""
    own_certificates: str | None = None
    """The certificates of ``own_key`` in PEM, its own first."""
    own_store_password: str | None = field(default=None, repr=False)
    """The password of ``own_file``, if that is PKCS#12."""
    own_password: str | None = field(default=None, repr=False)
    """The password of the private key."""
    own_type: str | None = None
    """What ``own_file`` has to be, PEM or PKCS12; None: what it is."""
    checks_host: bool = True
    """Whether a broker's certificate has to be for the name by which it was called."""
    versions: tuple[str, ...] = VERSIONS
    """The versions of TLS to speak: ``TLSv1.2``, ``TLSv1.3``."""
    cipher_suites: tuple[str, ...] = ()
    """OpenSSL's names of the cipher suites of TLS 1.2 to offer; by default those that Python holds for secure."""

    def make_context(self) -> ssl.SSLContext:
        """Read the files and return the context. Raises ``ValueError`` that names the setting that cannot work."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_host
        limit_versions(context, self.versions)
        if self.cipher_suites:
            with _about("ssl_cipher_suites"):
                choose_cipher_suites(context, self.cipher_suites)
        self._load_trusted(context)
        self._load_own(context)
        return context

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        if self.trusted_file is None and self.trusted_text is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if self.trusted_file is not None:
            with _about("ssl_truststore_location", self.trusted_file):
                data = _read(self.trusted_file)
                _require_type("ssl_truststore_type", self.trusted_type, data)
                load_trusted(context, read_trust_store(data, store_password=self.trusted_password))
        if self.trusted_text is not None:
            with _about("ssl_truststore_certificates"):
                load_trusted(context, read_trust_store(unfold(self.trusted_text).encode()))

    def _load_own(self, context: ssl.SSLContext) -> None:
        material = self._own_material()
        if material is not None:
            with _about(*self._place_of_own()):
                load_key_material(context, material)

    def own_certificate(self) -> bytes | None:
        """Return the client's own certificate in PEM; None without one. Raises ``ValueError`` as ``make_context``."""
        material = self._own_material()
        return None if material is None else material.certificates[0]

    def _place_of_own(self) -> tuple[str, str | None]:
        """Return the setting that the private key is from, and the file."""
        return ("ssl_keystore_key", None) if self.own_file is None else ("ssl_keystore_location", self.own_file)

    def _own_material(self) -> KeyMaterial | None:
        if self.own_file is None and self.own_key is None:
            return None
        with _about(*self._place_of_own()):
            if self.own_file is None:
                together = unfold(f"{self.own_key}\n{self.own_certificates or ''}").encode()
                return read_key_store(together, key_password=self.own_password)
            data = _read(self.own_file)
            _require_type("ssl_keystore_type", self.own_type, data)
            passwords = {"store_password": self.own_store_password, "key_password": self.own_password}
            return read_key_store(data, **passwords)


def trusting_context() -> ssl.SSLContext:
    """Return a context that accepts every certificate: to look at what a listener presents, never to send anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def limit_versions(context: ssl.SSLContext, versions: Iterable[str]) -> None:
    """Have a context speak these versions of TLS only, which are of ``VERSIONS``."""
    chosen = sorted(_IN_OPENSSL[version] for version in versions)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]


def choose_cipher_suites(context: ssl.SSLContext, names: Iterable[str]) -> None:
    """Have a context offer these cipher suites of TLS 1.2 only. Raises ``StoreError`` for a name that is not known."""
    known = []
    for name in names:  # In a list of several, OpenSSL says nothing of those that it does not know.
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise StoreError(f"has {name}, which OpenSSL does not know as a cipher suite of TLS 1.2") from None
        known.append(name)
    context.set_ciphers(":".join(known))


def load_trusted(context: ssl.SSLContext, certificates: Iterable[bytes]) -> None:
    """Have a context trust these certificates, each in PEM, as Java does: also one of no authority, as it is.

    Raises ``StoreError`` for a certificate that OpenSSL does not accept.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(certificates).decode("ascii"))
    except ssl.SSLError as error:
        raise StoreError(f"has a certificate that OpenSSL does not accept: {_reason(error)}") from None


def load_key_material(context: ssl.SSLContext, material: KeyMaterial) -> None:
    """Have a context present a certificate. The key is in no file afterwards.

    Raises ``StoreError`` for a key or certificate that OpenSSL does not accept, such as one that is too short.
    """
    with _short_lived_file(material.private_key + b"".join(material.certificates)) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise StoreError(f"has a key or certificate that OpenSSL does not accept: {_reason(error)}") from None


@contextmanager
def _short_lived_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file that only this user can read: Python loads a private key from files only.

    On Linux it is in memory and has no name. Elsewhere it is removed when it was loaded.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("oncelog-tls")
        with os.fdopen(descriptor, "wb") as file:
            path = f"/proc/self/fd/{descriptor}"
            if os.path.exists(path):
                file.write(content)
                file.flush()
                yield path
                return
    descriptor, path = tempfile.mkstemp(prefix="oncelog-tls-")  # Only its owner can read it.
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_LONGEST)


def _require_type(name: str, expected: str | None, data: bytes) -> None:
    """Raise ``SettingError`` if a store is of another type than expected. As in Java, JKS may be PKCS#12 as well."""
    found = store_type(data)
    if expected is not None and expected.upper() not in (found, "JKS" if found == "PKCS12" else found):
        raise SettingError(name, f"is {expected}, but the file is {found}: leave it out")


@contextmanager
def _about(name: str, path: str | None = None) -> Iterator[None]:
    """Turn what is wrong with a store into what is wrong with the setting that names it."""
    where = "" if path is None else f"{path!r} "
    try:
        yield
    except StoreError as error:
        ours = _KAFKAS_NAME.sub(lambda found: found[0].replace(".", "_"), str(error))
        raise SettingError(name, f"{where}{ours}") from None
    except OSError as error:
        raise SettingError(name, f"{where}cannot be read: {error.strerror or error}") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
