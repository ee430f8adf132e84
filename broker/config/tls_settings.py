"""The settings of TLS, a part of the broker's table (``BrokerConfig``), under Kafka's names.

Each can be set for one listener, as ``listener.name.NAME.KEY`` (``oncelog.broker.config.tls_config``).
"""

from dataclasses import dataclass
from typing import Final

from oncelog.broker.config.settings import boolean, long, password, string, strings

_BY_CONTENT: Final = "What a store is, is seen by its content; JKS must be converted to PKCS12 by keytool."
_BY_OPENSSL: Final = "OpenSSL does this work, and its own defaults are used"
CLIENT_AUTH: Final = ("none", "requested", "required")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TlsSettings:
    """Certificates, and what is required of clients."""

    ssl_enabled_protocols: tuple[str, ...] = strings(
        ("TLSv1.2", "TLSv1.3"), "Versions of TLS that are accepted.", choices=("TLSv1.2", "TLSv1.3")
    )
    ssl_protocol: str = string("TLSv1.3", "Java's name of an SSL context.", unused="ssl.enabled.protocols decides")
    ssl_cipher_suites: tuple[str, ...] = strings(
        (), "Cipher suites that are accepted, by the names of Java or OpenSSL; empty: OpenSSL's default."
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients need a certificate: none, requested or required. For a listener with SASL only if set for "
        "that listener.",
        choices=CLIENT_AUTH,
    )
    ssl_keystore_type: str = string("JKS", f"Type of the key store: PKCS12 or PEM. {_BY_CONTENT}")
    ssl_keystore_location: str | None = string(None, "File with this broker's private key and certificates.")
    ssl_keystore_password: str | None = password("Password of the key store, if it is PKCS12.")
    ssl_key_password: str | None = password("Password of the private key, if it has one of its own.")
    ssl_keystore_key: str | None = password("This broker's private key itself, as PEM, in place of a key store.")
    ssl_keystore_certificate_chain: str | None = password("The certificates of ssl.keystore.key, as PEM.")
    ssl_truststore_type: str = string("JKS", f"Type of the trust store: PKCS12 or PEM. {_BY_CONTENT}")
    ssl_truststore_location: str | None = string(
        None, "File with the certificates that are trusted. Without one those that the system trusts."
    )
    ssl_truststore_password: str | None = password("Password of the trust store, if it is PKCS12.")
    ssl_truststore_certificates: str | None = password(
        "The certificates that are trusted themselves, as PEM, in place of a trust store."
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https", "How the certificates of other brokers are compared with their host names; empty: not at all."
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        "How the subject of a client's certificate becomes its user: RULE:pattern/replacement/[LU],… and DEFAULT, the "
        "subject itself. The first rule that matches all of it counts.",
    )
    ssl_allow_dn_changes: bool = boolean(
        False, "Whether a reloaded certificate of this broker may have another distinguished name."
    )
    ssl_allow_san_changes: bool = boolean(
        False, "Whether a reloaded certificate of this broker may lack alternative names of the former."
    )
    oncelog_ssl_reload_interval_ms: int = long(
        10_000, "Milliseconds between two looks whether the files of key and trust stores have changed; 0: none.", low=0
    )
    ssl_provider: str | None = string(None, "Java's security provider.", unused=_BY_OPENSSL)
    ssl_secure_random_implementation: str | None = string(None, "Java's random source.", unused=_BY_OPENSSL)
    ssl_keymanager_algorithm: str = string("SunX509", "Java's key manager.", unused=_BY_OPENSSL)
    ssl_trustmanager_algorithm: str = string("PKIX", "Java's trust manager.", unused=_BY_OPENSSL)
