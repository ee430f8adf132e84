"""Where the logs of a partition's replicas end, as brokers report it while the partition has no leader. Pure.

A broker that is sent a state without a leader returns the end of its log in the LeaderAndIsr response. Nothing is
appended to the log or cut from it until there is a leader. So a report holds for that leader epoch and that incarnation
of the broker, and for no other. An earlier release, or Apache Kafka, reports nothing: that log end is unknown.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from oncelog.protocol.topic_partition import TopicPartition

NO_LEADER_EPOCH: Final = -1


class LogEnd(NamedTuple):
    """How far a log goes. Of two logs with batches, the greater end is that of the log with more of the history."""

    leader_epoch: int
    """Of the last batch; -1: the log is empty. Its records may have been deleted (``unclean_recovery``)."""
    offset: int
    """The log end offset."""


UNKNOWN_END: Final = LogEnd(NO_LEADER_EPOCH, -1)
"""Of a broker that reports none: less than that of any log."""


class _Report(NamedTuple):
    leader_epoch: int
    """Of the state without a leader."""
    broker_epoch: int
    end: LogEnd


class LogEnds:
    """What was reported during one controller epoch."""

    def __init__(self) -> None:
        self._reports: dict[TopicPartition, dict[int, _Report]] = {}

    def take(
        self,
        broker_id: int,
        request: LeaderAndIsrRequest,
        response: LeaderAndIsrResponse,
        topic_names: Mapping[bytes, str],
    ) -> set[TopicPartition]:
        """Take the log ends of a response; return the partitions of which one is new."""
        if response.error_code:
            return set()
        epochs = dict(_leaderless(request))
        found = set()
        for topic in response.topics if epochs else ():
            name = topic_names.get(topic.topic_id)
            for each in topic.partition_errors:
                partition = TopicPartition(name or "", each.partition_index)
                end = LogEnd(each.last_leader_epoch, each.log_end_offset)
                if end == UNKNOWN_END or partition not in epochs:
                    continue
                report = _Report(epochs[partition], request.broker_epoch, end)
                reports = self._reports.setdefault(partition, {})
                if reports.get(broker_id) != report:
                    reports[broker_id] = report
                    found.add(partition)
        return found

    def of(self, partition: TopicPartition, leader_epoch: int, broker_epochs: Mapping[int, int]) -> dict[int, LogEnd]:
        """Return by broker the log ends that hold at this leader epoch of a state without a leader."""
        return {
            broker_id: report.end
            for broker_id, report in self._reports.get(partition, {}).items()
            if report.leader_epoch == leader_epoch and broker_epochs.get(broker_id) == report.broker_epoch
        }

    def forget(self, partition: TopicPartition) -> None:
        """Drop the reports of a partition that has a leader, or exists no more."""
        self._reports.pop(partition, None)


def _leaderless(request: LeaderAndIsrRequest) -> Iterator[tuple[TopicPartition, int]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            if state.leader == NO_LEADER:
                yield TopicPartition(topic.topic_name, state.partition_index), state.leader_epoch
