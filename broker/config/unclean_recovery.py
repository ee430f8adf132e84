"""``unclean.recovery.strategy``, a setting of brokers and topics alike: its values and their meaning."""

from typing import Final

from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy

STRATEGIES: Final = tuple(strategy.value for strategy in RecoveryStrategy)
STRATEGY: Final = (
    "Who leads if no replica certainly has everything acknowledged. none: the last leader, when all in-sync and "
    "eligible replicas are back. balanced: the longest log, when all that may have it are back. longest_log: the "
    "longest log of the replicas that are up, after at most 10 s; this loses records. Needs "
    "eligible.leader.replicas.version 1."
)
