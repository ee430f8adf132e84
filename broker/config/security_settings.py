"""The rows of the broker's table of settings that are about security (``oncelog.broker.config.broker_config``)."""

from dataclasses import dataclass
from typing import Final

from oncelog.broker.config.settings import boolean, string

AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Kafka's names of its authorizers, on ZooKeeper and with KRaft."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SecuritySettings:
    """The settings of one broker by which it decides what clients may do."""

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
    zookeeper_set_acl: bool = boolean(False, "Whether to protect znodes with ACLs. true is refused: not supported yet.")
