"""``RecoveryWaits``: the bounded times for which partitions without a leader wait for log ends.

A wait begins when the partition could be led by a replica that is there, and better ones may still report or come back
(``unclean_recovery``). It ends with the state that it began with, or when that is so no more. A new controller begins
all waits anew: log ends are reported to it again.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.coordinator.controller.cluster_state import ClusterState
from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy
from oncelog.coordinator.controller.standing import Standing
from oncelog.coordinator.controller.unclean_recovery import recovery_of
from oncelog.coordinator.controller.waiting_partition import NO_REPLICA, NO_TIME, WaitingPartition
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.coordinator.ports import WallClock
from oncelog.protocol.topic_partition import TopicPartition

WAIT_SECONDS: Final = 10.0
_TICK_SECONDS: Final = 0.01
"""A timer may fire earlier than its time by less than this."""


class _Wait(NamedTuple):
    leader_epoch: int
    until: float
    """A time of the loop."""
    until_ms: int
    """The same by the wall clock."""


class RecoveryWaits:
    """The waits of one controller epoch; ``ClusterState.waiting`` says what each partition waits for."""

    def __init__(self, state: ClusterState, wall_clock: WallClock) -> None:
        """Begin without waits."""
        self._state = state
        self._wall_clock = wall_clock
        self.on_over: Callable[[], None] = _nothing
        """Called when a wait is over."""
        self._waits: dict[TopicPartition, _Wait] = {}
        self._timer: asyncio.TimerHandle | None = None

    def is_over(self, partition: TopicPartition, leader_epoch: int) -> bool:
        """Return whether a partition has waited long enough in the state of this leader epoch."""
        wait = self._waits.get(partition)
        return wait is not None and wait.leader_epoch == leader_epoch and _is_past(wait)

    def over(self) -> list[TopicPartition]:
        """Return the partitions that have waited long enough. Drop the waits of those that exist no more."""
        self._waits = {partition: wait for partition, wait in self._waits.items() if partition in self._state.waiting}
        return [partition for partition, wait in self._waits.items() if _is_past(wait)]

    def follow(
        self, partition: TopicPartition, state: PartitionState, standing: Standing, strategy: RecoveryStrategy
    ) -> bool:
        """Begin, continue or end the wait of a partition without a leader; return whether what it waits for is new."""
        recovery = recovery_of(state, standing, strategy)
        known = self._state.waiting.get(partition)
        wait = None if known is None else self._waits.get(partition)
        if not recovery.is_timed:
            self._waits.pop(partition, None)
        elif wait is None or wait.leader_epoch != state.leader_epoch:
            self._begin(partition, state.leader_epoch)
        unclean = recovery_of(state, standing, RecoveryStrategy.LONGEST_LOG).ranked
        wait = self._waits.get(partition)
        waiting = WaitingPartition(
            strategy=strategy.value,
            waits_for=tuple(recovery.absent or recovery.unreported),
            elects=unclean[0] if unclean else NO_REPLICA,
            decides_at_ms=NO_TIME if wait is None else wait.until_ms,
            log_ends=standing.log_ends,
        )
        self._state.waiting[partition] = waiting
        return known != waiting

    def _begin(self, partition: TopicPartition, leader_epoch: int) -> None:
        until = asyncio.get_running_loop().time() + WAIT_SECONDS
        self._waits[partition] = _Wait(leader_epoch, until, self._wall_clock() + round(WAIT_SECONDS * 1000))
        self._set_timer()

    def forget(self, partition: TopicPartition) -> bool:
        """End the wait of a partition that has a leader, or exists no more; return whether it was known to wait."""
        self._waits.pop(partition, None)
        return self._state.waiting.pop(partition, None) is not None

    def end(self) -> None:
        """Stop the timer: the controller epoch has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        """Wake up at the end of the first wait that is not over."""
        if self._timer is not None:
            return
        pending = [wait.until for wait in self._waits.values() if not _is_past(wait)]
        if pending:
            self._timer = asyncio.get_running_loop().call_at(min(pending), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._set_timer()
        self.on_over()


def _nothing() -> None:
    """Do nothing, until there is a listener."""


def _is_past(wait: _Wait) -> bool:
    return asyncio.get_running_loop().time() + _TICK_SECONDS >= wait.until
