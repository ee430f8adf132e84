"""The settings of the connection to ZooKeeper, a part of the broker's table (``BrokerConfig``).

The names are those of Kafka 3.9, the last release with ZooKeeper. One is ours: Kafka reads its login from a file of the
JVM (``java.security.auth.login.config``), which there is none of here.
"""

from dataclasses import dataclass
from typing import Final

from oncelog.broker.config.security_settings import SecuritySettings
from oncelog.broker.config.settings import boolean, integer, password, string, strings
from oncelog.protocol.tls.settings import VERSIONS

NETTY: Final = "org.apache.zookeeper.ClientCnxnSocketNetty"
_ONE_VERSION: Final = ("TLSv1.2", "TLSv1.3", "TLS")
_BY_CONTENT: Final = "What the store is, is seen by its content."
_NO_REVOCATION: Final = "true is refused: revoked certificates are not looked for."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ZooKeeperSettings(SecuritySettings):
    """Where ZooKeeper is, how brokers know it and prove who they are, and whether its znodes are protected."""

    zookeeper_connect: str = string(
        "",
        "ZooKeeper connection string: host:port,…/chroot. Empty: a standalone broker with the embedded metadata store.",
    )
    zookeeper_session_timeout_ms: int = integer(
        18_000, "ZooKeeper session timeout to request, in milliseconds. ZooKeeper grants 2 to 20 of its ticks.", low=1
    )
    zookeeper_connection_timeout_ms: int | None = integer(
        None,
        "Milliseconds to wait for the first connection to ZooKeeper; zookeeper.session.timeout.ms if not set.",
        low=1,
    )
    zookeeper_set_acl: bool = boolean(
        False,
        "Whether the znodes that this broker creates can be changed by the brokers only, and those with secrets only "
        "be read by them. Needs oncelog.zookeeper.sasl.jaas.config or zookeeper.ssl.keystore.location.",
    )
    oncelog_zookeeper_sasl_jaas_config: str | None = password(
        "Login of the brokers to ZooKeeper (SASL, DIGEST-MD5): org.apache.zookeeper.server.auth.DigestLoginModule "
        'required username="NAME" password="PASSWORD"; as in the section Client of a JAAS file.'
    )
    zookeeper_ssl_client_enable: bool = boolean(
        False, "Whether to connect to ZooKeeper by TLS, at its secureClientPort."
    )
    zookeeper_clientCnxnSocket: str | None = string(
        None, "Class of Java's ZooKeeper client, which TLS needs there; there is no choice here.",
        unused="the ZooKeeper client of this broker has TLS in any case",
    )  # fmt: skip
    zookeeper_ssl_truststore_location: str | None = string(
        None,
        "File with the certificates of the authorities that sign ZooKeeper's, PEM or PKCS12. Without one those that "
        "the system trusts.",
    )
    zookeeper_ssl_truststore_password: str | None = password("Password of that file, if it is PKCS12.")
    zookeeper_ssl_truststore_type: str | None = string(None, f"Type of that file: PKCS12 or PEM. {_BY_CONTENT}")
    zookeeper_ssl_keystore_location: str | None = string(
        None,
        "File with a private key and certificates of the broker, PEM or PKCS12, for a ZooKeeper that authenticates "
        "clients by TLS. Its znodes belong to the distinguished name, which has to be that of all brokers.",
    )
    zookeeper_ssl_keystore_password: str | None = password(
        "Password of that file, if it is PKCS12, or of its private key, if it is PEM."
    )
    zookeeper_ssl_keystore_type: str | None = string(None, f"Type of that file: PKCS12 or PEM. {_BY_CONTENT}")
    zookeeper_ssl_protocol: str | None = string(
        None, "Version of TLS to speak, if zookeeper.ssl.enabled.protocols is not set.", choices=_ONE_VERSION
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = strings(
        (), "Versions of TLS to speak; empty: zookeeper.ssl.protocol, or both.", choices=VERSIONS
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = strings(
        (), "Cipher suites of TLS 1.2 to offer, by the names of Java or OpenSSL; empty: OpenSSL's default."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = string(
        "https", "How ZooKeeper's certificate is compared with the host name in zookeeper.connect; empty: not at all."
    )
    zookeeper_ssl_crl_enable: bool = boolean(False, f"Whether to use revocation lists. {_NO_REVOCATION}")
    zookeeper_ssl_ocsp_enable: bool = boolean(False, f"Whether to ask for revocations by OCSP. {_NO_REVOCATION}")
