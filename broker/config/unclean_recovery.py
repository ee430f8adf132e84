"""``unclean.recovery.strategy``, a setting of brokers and topics alike: its values and their meaning."""

from typing import Final

from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy

STRATEGIES: Final = tuple(strategy.value for strategy in RecoveryStrategy)
STRATEGY: Final = (
    "Who leads if no replica certainly has everything acknowledged. none: the last leader, when all in-sync and "
    "eligible replicas are back; this loses what it lacks, also if another replica has it. balanced: the longest log, "
    "when all that may have everything are back. longest_log: the longest log of the replicas that are up, after at "
    "most 10 s; this loses what only an absent replica has. Needs eligible.leader.replicas.version 1."
)
