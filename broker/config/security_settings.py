"""The settings of security, the first part of the broker's table (``BrokerConfig``).

Kafka has more keys than rows here: most of these can be set for one listener, and for one mechanism of it, by a prefix.
``prefixed`` holds those as they were written; ``oncelog.broker.config.sasl_config``,
``oncelog.broker.config.oauth_config`` and ``oncelog.broker.config.tls_config`` read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.broker.config.settings import boolean, integer, long, password, string, strings
from oncelog.broker.config.token_settings import TokenSettings

_GSSAPI: Final = "GSSAPI"
AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Kafka's names of its authorizers, on ZooKeeper and with KRaft."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SecuritySettings(TokenSettings):
    """How clients and brokers authenticate, and what they may do then."""

    security_inter_broker_protocol: str = string(
        "PLAINTEXT", "Security protocol between brokers, if inter.broker.listener.name is not set."
    )
    sasl_enabled_mechanisms: tuple[str, ...] = strings(
        (_GSSAPI,),
        "SASL mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. GSSAPI, Kafka's default, "
        "is refused. For one listener: listener.name.NAME.sasl.enabled.mechanisms.",
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        _GSSAPI, "SASL mechanism with which brokers authenticate to each other."
    )
    sasl_jaas_config: str | None = password(
        "Login module with users and the broker's own login. Usually set for one listener and mechanism, by the key "
        "listener.name.NAME.MECHANISM.sasl.jaas.config, in lower case."
    )
    sasl_server_max_receive_size: int = integer(
        524_288, "Maximum size of a request before authentication, in bytes.", low=0
    )
    connections_max_reauth_ms: int = long(
        0,
        "Milliseconds after which a client must have authenticated again (KIP-368); 0: never. "
        "For one listener and mechanism: listener.name.NAME.MECHANISM.connections.max.reauth.ms.",
        low=0,
    )
    connection_failed_authentication_delay_ms: int = integer(
        100, "Milliseconds before a failed authentication has its response and its connection is closed.", low=0
    )
    oncelog_authentication_timeout_ms: int = integer(
        30_000, "Maximum milliseconds from a connection to its authentication; then it is closed.", low=1
    )
    authorizer_class_name: str = string(
        "",
        "Kafka's name of the authorizer. Both kafka.security.authorizer.AclAuthorizer and "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer mean the one that decides by the access control lists "
        "in the metadata store. Empty: every client may do everything.",
    )
    super_users: str = string(
        "", "Principals that may do everything, the brokers' own among them: User:a;User:b, with semicolons."
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether every client may do everything to a resource that no access control list is about."
    )
    oncelog_audit_file: str | None = string(
        None, "File that receives a sealed line for each login, denial and change by a client; none if not set."
    )
    oncelog_audit_file_max_bytes: int = long(
        100 * 1024 * 1024,
        "Size from which on the audit log goes on in a new file, in bytes; the former gets the number of its first "
        "line behind its name. 0: one file.",
        low=0,
    )
    oncelog_audit_key_file: str | None = string(
        None, "File with a key of 16 bytes or more, without which no seal of the audit log can be made."
    )
    oncelog_audit_decisions: str = string(
        "denied", "Which decisions of access control the audit log has: denied or all.", choices=("denied", "all")
    )
    zookeeper_set_acl: bool = boolean(False, "Whether to protect znodes with ACLs. true is refused: not supported yet.")

    prefixed: Mapping[str, str] = field(default_factory=dict)
    """Settings of one listener, one mechanism, or both, by their whole keys, as they were written."""
