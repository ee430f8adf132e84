"""Who may read and change which znode, if znodes are protected (``zookeeper.set.acl``): as in Apache Kafka 3.9. Pure.

Only the brokers change znodes, and everybody who reaches ZooKeeper can read them, save those with secrets: passwords of
users in their salted and hashed form, the settings of brokers, delegation tokens. ``/consumers`` stays open, since old
clients write there; brokers never read it.
"""

from enum import Enum
from typing import Final

from oncelog.coordinator.metadata_store import paths, token_znodes

_CONSUMERS: Final = "/consumers"
SECRET_ROOTS: Final = (paths.USER_CONFIGS, paths.BROKER_CONFIGS, token_znodes.TOKENS)

PROTECTED_ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    paths.CONFIG,
    paths.CONTROLLER,
    paths.CONTROLLER_EPOCH,
    "/isr_change_notification",
    paths.LATEST_PRODUCER_ID_BLOCK,
    paths.LOG_DIR_EVENTS,
    "/delegation_token",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    paths.FEATURE,
    "/migration",
)
"""The znodes at the top that belong to the brokers, with all that is below them; the last is Kafka's only."""


class ZnodeAccess(Enum):
    """What a znode's access control list says."""

    OPEN = "everybody may do everything"
    READABLE = "the user that has created it may do everything, and everybody may read it"
    SECRET = "only the user that has created it may read and change it"


def access_of(path: str) -> ZnodeAccess:
    """Return who may do what with a protected znode; the path is below the chroot."""
    if path == _CONSUMERS:
        return ZnodeAccess.OPEN
    return ZnodeAccess.SECRET if path.startswith(SECRET_ROOTS) else ZnodeAccess.READABLE
