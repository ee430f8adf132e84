"""``UnopenedLogs``: replicas whose logs cannot be opened because the process may open no more files.

Nothing is wrong with such a log. The controller has other brokers lead its partition, and need not repeat the request.
The requested state of the replica is deferred until the log can be opened: one log is tried at a time, later each time
that it fails, and when it succeeds the others follow at once, and the change is reported to the controller. A later
request about the replica replaces the deferred state. The log reports the first replica that is affected, and when none
is any more.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0


class DeferredState(NamedTuple):
    """The state of one replica in a LeaderAndIsr, to be carried out later."""

    topic_partition: TopicPartition
    topic_id: bytes
    state: LeaderAndIsrPartitionState
    in_order: bool
    """Whether the request was known to be newer than all that were carried out before."""


class UnopenedLogs:
    """The replicas of one broker, in the order in which they failed."""

    def __init__(self, carry_out: Callable[[DeferredState], bool]) -> None:
        """Keep nothing; ``carry_out`` returns False if there is still no descriptor: it has called ``keep`` again."""
        self._carry_out = carry_out
        self._deferred: dict[TopicPartition, DeferredState] = {}
        self._pause = _FIRST_PAUSE_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self.on_opened: Callable[[], None] = _nothing
        """Called after logs could be opened at last."""
        self.error = ""
        """Of the last attempt."""

    def __len__(self) -> int:
        return len(self._deferred)

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """Return the replicas that wait."""
        return frozenset(self._deferred)

    def keep(self, deferred: DeferredState, error: OSError) -> None:
        """Carry the state out later."""
        self.error = error.strerror or str(error)
        if not self._deferred and self._timer is None:
            logger.error(
                "The log of %s cannot be opened: %s. This replica, and others that are new, are out of service until "
                "they can be: raise the limit of open files (ulimit -n). Logs that are open go on",
                deferred.topic_partition,
                self.error,
            )
        self._deferred[deferred.topic_partition] = deferred
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._try)

    def has(self, topic_partition: TopicPartition) -> bool:
        """Return whether the log of the replica cannot be opened yet."""
        return topic_partition in self._deferred

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop what was kept of a replica: a later request says what becomes of it. No effect if its log is open."""
        self._deferred.pop(topic_partition, None)

    def stop(self) -> None:
        """Make no further attempt."""
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        """Carry states out until one fails, which is then the last in turn: also if it ends in an exception."""
        longer = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(longer, self._try)
        waiting = list(self._deferred)
        for topic_partition in waiting:
            deferred = self._deferred.pop(topic_partition)
            is_done = False
            try:
                is_done = self._carry_out(deferred)
            finally:
                if not is_done:
                    self._deferred.setdefault(topic_partition, deferred)
                    self._pause = longer
            if not is_done:
                if topic_partition != waiting[0]:
                    self.on_opened()
                return
        if waiting:
            self.on_opened()
        self._timer.cancel()
        self._timer = None
        self._pause = _FIRST_PAUSE_SECONDS
        logger.info("All logs can be opened again")


def _nothing() -> None:
    """Do nothing, until there is a listener."""
