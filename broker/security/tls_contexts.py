"""What OpenSSL needs for one listener: contexts of both ends, made from the files that the settings name."""

import os
import ssl
import stat
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.tls_config import StoreConfig, TlsListener
from oncelog.clients.tls import choose_cipher_suites, limit_versions, load_key_material, load_trusted
from oncelog.protocol.tls.pem import unfold
from oncelog.protocol.tls.stores import KeyMaterial, StoreError, read_key_store, read_trust_store, require_nothing_else

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MOST_FLIGHTS: Final = 4
"""Of a handshake, to each end."""
_MOST_BYTES: Final = 1 << 20
"""Of a store."""


class StoreContents(NamedTuple):
    """What the files of a listener hold, or its settings in their place."""

    key_store: bytes
    trust_store: bytes | None


class Certificates(NamedTuple):
    """The certificates of a listener."""

    own: KeyMaterial
    trusted: tuple[bytes, ...] | None
    """PEM; None: those that the system trusts."""


def read_contents(listener: TlsListener) -> StoreContents:
    """Read the files. Raises ``ConfigError`` for one that cannot be read."""
    trust_store = None if listener.trust_store is None else _content(listener.trust_store)
    return StoreContents(_content(listener.key_store), trust_store)


def _content(store: StoreConfig) -> bytes:
    if store.location is None:
        return unfold(store.pem or "").encode()
    try:
        with open(store.location, "rb", opener=_open_regular) as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{store.key}={store.location} cannot be read: {error.strerror or error}") from None


def _open_regular(path: str, flags: int) -> int:
    """Open a file, and nothing whose bytes one could wait for."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no regular file")
    return descriptor


def parse_certificates(listener: TlsListener, contents: StoreContents) -> Certificates:
    """Return the certificates. Raises ``ConfigError`` for what is no store, or needs another password."""
    store = listener.key_store
    try:
        if store.is_altered:
            require_nothing_else(contents.key_store)
        own = read_key_store(contents.key_store, store_password=store.password, key_password=store.key_password)
        store = listener.trust_store or store
        if store.is_altered and contents.trust_store:
            require_nothing_else(contents.trust_store)
        trusted = contents.trust_store and read_trust_store(contents.trust_store, store_password=store.password)
    except StoreError as error:
        raise ConfigError(f"{store.key}{'' if store.location is None else f'={store.location}'} {error}") from None
    return Certificates(own, trusted or None)


def server_context(listener: TlsListener, certificates: Certificates) -> ssl.SSLContext:
    """Return the context of the listener's end. Raises ``ConfigError``."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, listener, certificates)
    context.verify_mode = _VERIFY[listener.client_auth]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    return context


def client_context(listener: TlsListener, certificates: Certificates) -> ssl.SSLContext:
    """Return the context with which this broker connects to the others' listener of that name."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, listener, certificates)
    context.check_hostname = listener.checks_host
    if certificates.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def require_own_trust(listener: TlsListener, certificates: Certificates) -> None:
    """Raise ``ConfigError`` if a handshake of the listener with itself fails: brokers of a cluster are alike."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(listener, certificates).wrap_bio(to_server, to_client, server_side=True)
    client_end = client_context(replace(listener, checks_host=False), certificates)
    client = client_end.wrap_bio(to_client, to_server)
    try:
        for end in (client, server) * _MOST_FLIGHTS:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or error
        store = listener.key_store.key if listener.trust_store is None else listener.trust_store.key
        raise ConfigError(
            f"listener {listener.name} connects brokers to each other, and they would not accept the certificate of "
            f"{listener.key_store.key} from one another: {reason}. {store} must trust who has signed it "
            "(ssl.truststore.location)"
        ) from None


def _context(protocol: int, listener: TlsListener, certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    limit_versions(context, listener.versions)
    key = f"ssl.cipher.suites of listener {listener.name}"
    try:
        if listener.cipher_suites:
            choose_cipher_suites(context, listener.cipher_suites)
        key = listener.key_store.key
        load_key_material(context, certificates.own)
        if certificates.trusted is not None and listener.trust_store is not None:
            key = listener.trust_store.key
            load_trusted(context, certificates.trusted)
    except StoreError as error:
        raise ConfigError(f"{key} {error}") from None
    return context
