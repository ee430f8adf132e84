"""Requests that brokers and the controller send to each other, which only a broker on ZooKeeper serves.

They name brokers that there are not, and so change nothing.
"""

from typing import Final

from oncelog.protocol.acl import AclOperation as Op
from tests.security.authorization_row import Row, c

_NO_BROKER: Final = {"broker_id": 99, "broker_epoch": 0}
_NO_CONTROLLER: Final = {"controller_id": 99, "controller_epoch": 0, "broker_epoch": 0}
_AS_BROKER: Final = (c(Op.CLUSTER_ACTION),)

BROKERS_ROWS: Final = (
    Row(request="LeaderAndIsr", version=7, fields=_NO_CONTROLLER, needs=_AS_BROKER),
    Row(request="StopReplica", version=4, fields=_NO_CONTROLLER, needs=_AS_BROKER),
    Row(request="UpdateMetadata", version=8, fields=_NO_CONTROLLER, needs=_AS_BROKER),
    Row(request="AlterPartition", version=3, fields=_NO_BROKER, needs=_AS_BROKER),
    Row(request="ControlledShutdown", version=3, fields=_NO_BROKER, needs=_AS_BROKER),
)
