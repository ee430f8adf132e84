"""The controller's requests about the replicas of this broker: LeaderAndIsr and StopReplica.

The messages are those of a cluster of Apache Kafka with ZooKeeper: LeaderAndIsr makes this broker leader or follower of
partitions, StopReplica ends that, with or without the data. Requests of an older controller, or that a newer one
overtook, are refused as a whole; states with an older leader epoch, or for another topic of the same name, one by one.
Logs that a full UpdateMetadata does not assign to this broker are set aside (``stray_replicas``). A broker that is
alone gets the same requests from its own controller.

A replica that cannot be written because no file can be opened gets REPLICA_NOT_AVAILABLE; one on a full disk gets
KAFKA_STORAGE_ERROR. The controller has other brokers lead it (``oncelog.coordinator.controller.full_disks``).

A log is created with its topic's configuration or not at all: a partition whose topic's configuration cannot be read
gets INVALID_CONFIG.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from oncelog.broker.replication.partition import NO_EPOCH, NO_LEADER, Partition
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.replication.requested_states import EPOCH_DURING_DELETE, requested_states, requested_stops
from oncelog.broker.replication.stray_replicas import is_of_another_topic, stray_reason
from oncelog.broker.replication.unopened_logs import DeferredState, UnopenedLogs
from oncelog.broker.storage.disk_errors import is_out_of_space, is_transient
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.coordinator.controller.cluster_image import MetadataCache, MetadataChange
from oncelog.coordinator.controller.controller_fence import NO_SEQUENCE
from oncelog.coordinator.controller.log_ends import UNKNOWN_END, LogEnd
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from oncelog.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

LogConfigOf: TypeAlias = Callable[[str], LogConfig | None]
"""Topic to what its new logs are run by; None if the topic's configuration cannot be read."""


NewTopics: TypeAlias = frozenset[tuple[str, bytes]]
"""Names and ids of topics of which this broker has no log yet."""


class ConfigRead(NamedTuple):
    """A read of the configurations of topics, which may take longer than an order may wait."""

    topics: NewTopics
    task: asyncio.Task[bool]
    """Returns whether they are known."""


class ReplicaControl:
    """Carries out the controller's requests on the replicas of one broker."""

    def __init__(
        self, replicas: ReplicaManager, log_manager: LogManager, metadata: MetadataCache, log_config: LogConfigOf
    ) -> None:
        self._replicas = replicas
        self._broker_id = replicas.host.broker_id
        self._log_manager = log_manager
        self._metadata = metadata
        self._log_config = log_config
        self.requests_admitted = 0
        """LeaderAndIsr and StopReplica requests of a current controller, so far."""
        self.config_read: ConfigRead | None = None
        """The read that an order to create logs awaits, or has awaited in vain."""
        self.unopened = UnopenedLogs(self._carry_out)
        metadata.add_listener(self._set_strays_aside)

    @property
    def refusing(self) -> Collection[TopicPartition]:
        """Return the replicas that take no writes because no file can be opened."""
        return self._log_manager.space.files.refusing | self.unopened.topic_partitions

    def stop(self) -> None:
        """Make no further attempt to open a log."""
        self.unopened.stop()

    def topics_without_log(self, request: LeaderAndIsrRequest) -> set[str]:
        """Return the topics of which logs must be created to carry out the request."""
        return {topic_partition.topic for topic_partition, _ in self._without_log(request)}

    def _without_log(self, request: LeaderAndIsrRequest) -> Iterator[tuple[TopicPartition, bytes]]:
        """Yield the partitions that have no log, or only that of a former topic of this name; with their topic ids."""
        for topic_partition, topic_id, state in requested_states(request):
            if self._broker_id in state.replicas:
                log = self._log_manager.get(topic_partition)
                if log is None or is_of_another_topic(log.topic_id, topic_id):
                    yield topic_partition, topic_id

    async def prepare_logs(self, request: LeaderAndIsrRequest) -> bool:
        """Make the files of new logs off the loop. Return False if another request was carried out meanwhile.

        That one may have deleted what this one would create, so the controller must send this one again.
        """
        admitted = self.requests_admitted
        await self._log_manager.prepare(
            (topic_partition, None if topic_id == ZERO_UUID else topic_id)
            for topic_partition, topic_id in self._without_log(request)
            if self._log_config(topic_partition.topic) is not None
        )
        return self.requests_admitted == admitted

    async def create_and_apply(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Carry out a request that creates logs; REQUEST_TIMED_OUT if another one was carried out meanwhile."""
        is_current = request.controller_epoch >= self._metadata.controller_epoch
        if is_current and not await self.prepare_logs(request):
            return LeaderAndIsrResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
        return self.apply_leader_and_isr(request)

    def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        if not self._metadata.admit(request, "LeaderAndIsr"):
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.requests_admitted += 1
        response, in_order = LeaderAndIsrResponse(), request.sequence != NO_SEQUENCE
        for state in request.ungrouped_partition_states:
            topic_partition = TopicPartition(state.topic_name, state.partition_index)
            response.partition_errors.append(self._apply_state(topic_partition, ZERO_UUID, state, in_order))
        for topic in request.topic_states:
            errors = [
                self._apply_state(
                    TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state, in_order
                )
                for state in topic.partition_states
            ]
            # Versions before 5 carry the first form, later ones the second.
            response.partition_errors += errors
            response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return response

    def _apply_state(
        self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState, in_order: bool
    ) -> LeaderAndIsrPartitionError:
        """Carry out the state of one partition.

        ``in_order``: the request is known to be newer than all that were carried out before.
        """
        error = self._refusal(topic_partition, topic_id, state, in_order)
        if not error:
            self.unopened.forget(topic_partition)
            try:
                error = self._change_leadership(topic_partition, topic_id, state)
            except OSError as failure:
                deferred = DeferredState(topic_partition, topic_id, state, in_order)
                error = self._cannot_open(deferred, failure)
        space = self._log_manager.space
        if space.is_full and error in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
            error = ErrorCode.KAFKA_STORAGE_ERROR  # Done as far as possible; the controller must know.
        elif topic_partition in space.files.refusing and error in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        elif error and error is not ErrorCode.REPLICA_NOT_AVAILABLE:
            partition = self._replicas.partition(topic_partition)
            # A controller that has just been elected repeats what is known.
            is_known = partition is not None and partition.leader_epoch == state.leader_epoch
            level = logging.DEBUG if is_known and error is ErrorCode.STALE_CONTROLLER_EPOCH else logging.WARNING
            logger.log(level, "LeaderAndIsr of %s at epoch %d: %s", topic_partition, state.leader_epoch, error.name)
        end = self._log_end(topic_partition, state)
        return LeaderAndIsrPartitionError(
            topic_name=topic_partition.topic,
            partition_index=topic_partition.partition,
            error_code=error,
            last_leader_epoch=end.leader_epoch,
            log_end_offset=end.offset,
        )

    def _log_end(self, topic_partition: TopicPartition, state: LeaderAndIsrPartitionState) -> LogEnd:
        """Return where the log ends if it stays so: the state that holds here, at this epoch, has no leader."""
        partition = self._replicas.partition(topic_partition)
        if partition is None or partition.log is None or partition.failed:
            return UNKNOWN_END
        if partition.leader_id != NO_LEADER or partition.leader_epoch != state.leader_epoch:
            return UNKNOWN_END
        log = partition.log
        return LogEnd(log.epochs.last_written(log.log_start_offset, log.log_end_offset), log.log_end_offset)

    def _cannot_open(self, deferred: DeferredState, error: OSError) -> ErrorCode:
        """Return the controller's error for a replica whose log cannot be opened; defer the state if that helps."""
        if not is_transient(error):
            logger.error("The log of %s cannot be opened", deferred.topic_partition, exc_info=error)
            self._replicas.events.on_storage_failure(deferred.topic_partition)
        elif is_out_of_space(error):  # Nothing is wrong with the log: no failure to report.
            self._log_manager.space.note(error, str(deferred.topic_partition))
        else:
            self.unopened.keep(deferred, error)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _carry_out(self, deferred: DeferredState) -> bool:
        """Carry out a deferred state; return False if there is still no descriptor for its log."""
        topic_partition, topic_id, state, in_order = deferred
        known = self._metadata.image.partition(topic_partition)
        if known is None or self._broker_id not in known.replicas:
            return True  # Its topic is gone, or it was moved away, and no StopReplica has arrived yet.
        self._apply_state(topic_partition, topic_id, state, in_order)
        return not self.unopened.has(topic_partition)

    def _refusal(
        self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState, in_order: bool
    ) -> ErrorCode:
        if self._broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self._log_manager.get(topic_partition)
        if log is not None:
            if log.failed:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if is_of_another_topic(log.topic_id, topic_id):
                return ErrorCode.NONE if in_order else ErrorCode.INCONSISTENT_TOPIC_ID
        partition = self._replicas.partition(topic_partition)
        if partition is not None and not _is_newer(state, partition):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def _change_leadership(
        self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState
    ) -> ErrorCode:
        known = self._log_manager.get(topic_partition)
        if known is not None and is_of_another_topic(known.topic_id, topic_id):
            self._set_aside(topic_partition, "its topic was deleted, and another one has its name")
        log = self._log_of(topic_partition, None if topic_id == ZERO_UUID else topic_id)
        if log is None:
            return ErrorCode.INVALID_CONFIG
        partition = self._replicas.add(topic_partition)
        partition.topic_id = log.topic_id or ZERO_UUID
        if log.topic_id is not None and topic_id == ZERO_UUID:
            self._replicas.own_ids[log.topic_id] = topic_partition.topic
        if state.leader == self._broker_id:
            self._replicas.lead(partition, state, log)
        else:
            self._replicas.follow(partition, state, log)
        return ErrorCode.KAFKA_STORAGE_ERROR if log.failed else ErrorCode.NONE

    def _log_of(self, topic_partition: TopicPartition, topic_id: bytes | None) -> PartitionLog | None:
        """Return the partition's log, created if need be; None if its topic's configuration cannot be read."""
        log = self._log_manager.get(topic_partition)
        if log is None:
            config = self._log_config(topic_partition.topic)
            if config is None:
                return None
            log = self._log_manager.create(topic_partition, config, topic_id)
        elif log.topic_id is None and topic_id is not None:
            log.set_topic_id(topic_id)
        return log

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        if not self._metadata.admit(request, "StopReplica"):
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.requests_admitted += 1
        errors, deletable = dict[TopicPartition, ErrorCode](), list[TopicPartition]()
        for topic_partition, topic_id, leader_epoch, delete in requested_stops(request):
            stopped = self._stop(topic_partition, topic_id, leader_epoch)
            errors[topic_partition] = ErrorCode.NONE if stopped is None else stopped
            if delete and stopped is None:
                deletable.append(topic_partition)
        errors |= self._delete(deletable)
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=error)
                for (topic, index), error in errors.items()
            ]
        )

    def _stop(self, topic_partition: TopicPartition, topic_id: bytes, leader_epoch: int) -> ErrorCode | None:
        """Stop a replica, if there is one. Return None, or the result if its log must stay."""
        log, partition = self._log_manager.get(topic_partition), self._replicas.partition(topic_partition)
        if log is not None and is_of_another_topic(log.topic_id, topic_id):
            logger.warning("StopReplica of %s is for another topic of this name: nothing to stop", topic_partition)
            return ErrorCode.NONE
        self.unopened.forget(topic_partition)
        if partition is not None:
            if partition.failed:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._replicas.retire(partition)
        return None

    def _delete(self, topic_partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Delete the logs of stopped replicas. Return the errors."""
        errors = dict[TopicPartition, ErrorCode]()
        try:
            self._log_manager.checkpoints.release(topic_partitions)
        except OSError:
            logger.exception("The logs of %d partitions cannot be deleted", len(topic_partitions))
            return dict.fromkeys(topic_partitions, ErrorCode.KAFKA_STORAGE_ERROR)
        for topic_partition in topic_partitions:
            try:
                self._log_manager.delete(topic_partition)
            except OSError:
                logger.exception("The log of %s cannot be deleted", topic_partition)
                errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        return errors

    def _set_aside(self, topic_partition: TopicPartition, reason: str) -> None:
        """Stop a replica that does not belong here, and keep its files under another name. Raises ``OSError``."""
        partition = self._replicas.partition(topic_partition)
        if partition is not None:
            self._replicas.retire(partition)
        path = self._log_manager.set_aside(topic_partition)
        logger.warning(
            "%s does not belong here, %s: set aside as %s; remove that only once the partition is in sync elsewhere",
            topic_partition,
            reason,
            path,
        )

    def _set_strays_aside(self, change: MetadataChange) -> None:
        if not change.is_full:
            return
        strays = dict[TopicPartition, str]()
        for log in self._log_manager:
            reason = stray_reason(log.topic_partition, log.topic_id, self._broker_id, change)
            if reason is not None and not log.failed:
                strays[log.topic_partition] = reason
        with suppress(OSError):  # Then each of them fails, and is reported.
            self._log_manager.checkpoints.release(strays)
        for topic_partition, reason in strays.items():
            try:
                self._set_aside(topic_partition, reason)
            except OSError as error:
                logger.exception("The log of %s cannot be set aside", topic_partition)
                if not is_transient(error):  # Else the next full update tries again.
                    self._replicas.events.on_storage_failure(topic_partition)


def _is_newer(state: LeaderAndIsrPartitionState, known: Partition) -> bool:
    """Return whether a state is newer than what is known. The ISR may change without an election."""
    if state.leader_epoch != known.leader_epoch:
        return state.leader_epoch > known.leader_epoch
    return state.leader == known.leader_id and state.partition_epoch > known.partition_epoch
