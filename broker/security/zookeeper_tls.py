"""``ZooKeeperTls``: TLS to ZooKeeper, by the ``zookeeper.ssl.*`` settings.

The files are read at the start, where what is wrong with them is refused, and again by the first connection after they
have changed: a certificate is renewed by replacing its file. A file that cannot be used then changes nothing.
"""

import logging
import os
import socket
import ssl
from typing import Final, TypeAlias

from oncelog.broker.config.settings import ConfigError
from oncelog.clients.setting_error import SettingError
from oncelog.clients.tls import TlsSettings
from oncelog.clients.tls_failures import Advice, explain
from oncelog.coordinator.metadata_store.zookeeper_security import ServerRefused

logger = logging.getLogger(__name__)

_Versions: TypeAlias = tuple[tuple[int, int, int], ...]
"""Of the files: inode, size and time of the last change of each."""

_KEY_STORE: Final = "zookeeper.ssl.keystore"
_NAMES: Final = {"ssl_key_password": f"{_KEY_STORE}.password", "ssl_keystore_password": f"{_KEY_STORE}.password"}
"""ZooKeeper's clients have one password for a key store and its key."""
_ADVICE: Final = Advice(
    peer="ZooKeeper",
    untrusted=(
        "set zookeeper.ssl.truststore.location to the certificate of the authority that signed ZooKeeper's certificate"
    ),
    out_of_time="renew ZooKeeper's certificate, or set the clock of this machine",
    other_host=(
        "name ZooKeeper in zookeeper.connect as its certificate does, or issue a certificate for this name; an empty "
        "zookeeper.ssl.endpoint.identification.algorithm gives up this check"
    ),
    own_certificate=(
        "set zookeeper.ssl.keystore.location to a private key and a certificate that ZooKeeper's trust store accepts"
    ),
    version="see zookeeper.ssl.enabled.protocols, and ssl.enabledProtocols of ZooKeeper",
    cipher=(
        "see zookeeper.ssl.cipher.suites, and ssl.ciphersuites of ZooKeeper; or, if ZooKeeper requires a certificate, "
        "set zookeeper.ssl.keystore.location"
    ),
    no_tls="name its secureClientPort in zookeeper.connect, or zookeeper.ssl.client.enable=false",
)


class ZooKeeperTls:
    """Implements ``oncelog.coordinator.metadata_store.zookeeper_security.SecureChannel``."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files. Raises ``ConfigError``."""
        self._settings = settings
        self._read = self._versions()
        self._context = self._make_context()

    def secure(self, connection: socket.socket, host: str) -> ssl.SSLSocket:
        """Do the handshake. Raises ``ServerRefused``, or ``OSError`` if the connection ends or times out."""
        self._renew()
        try:
            return self._context.wrap_socket(connection, server_hostname=host)
        except ssl.SSLEOFError:
            raise
        except ssl.SSLError as error:
            raise ServerRefused(self.explain(error)) from error

    def explain(self, error: ssl.SSLError) -> str:
        """Return what an error means, and the remedy."""
        failure = explain(error, _ADVICE)
        return f"cannot be reached by TLS: {failure}"

    def _renew(self) -> None:
        """Read the files again if they have changed."""
        versions = self._versions()
        if versions == self._read:
            return
        self._read = versions
        try:
            self._context = self._make_context()
            logger.info("The certificates for connections to ZooKeeper were read again")
        except ConfigError as error:
            logger.warning("The certificates for connections to ZooKeeper stay as they were: %s", error)

    def _make_context(self) -> ssl.SSLContext:
        try:
            return self._settings.make_context()
        except SettingError as error:
            raise ConfigError(error.spelt(_spell)) from None

    def _versions(self) -> _Versions:
        files = filter(None, (self._settings.trusted_file, self._settings.own_file))
        return tuple(map(_version, files))


def _version(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _spell(name: str) -> str:
    """Return the key of a setting that is written as an argument of a client."""
    return _NAMES.get(name, f"zookeeper.{name.replace('_', '.')}")
