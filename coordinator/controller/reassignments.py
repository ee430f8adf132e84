"""Moves of partitions to other brokers, carried out in the metadata store and told to the brokers.

A step of a move (what is decided lies in ``reassignment``) is one multi: the topic's assignment and the states of its
moving partitions, so that no controller ever finds one without the other. What is under way is in the assignments
themselves; a new controller goes on with it.

A replica that is not wanted any more is told to delete itself after its partition has another state without it. A
broker that does not hear that is told again when it does hear something, as long as this controller reigns.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.leadership import remember
from oncelog.coordinator.controller.reassignment import (
    begun_state,
    completed_state,
    is_complete,
    is_moving,
    is_reordered,
    plan,
    target_of,
)
from oncelog.coordinator.controller.reign import Reign
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Done, MultiFailed, Operation, SetData
from oncelog.coordinator.metadata_store.znodes import PartitionState, ReplicaAssignment
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""The replicas that partitions shall have; None takes the move that is under way back."""

_UNKNOWN: Final = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_NO_LEADER_LEFT: Final = ApiError(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT, "None of the replicas that would remain is in sync now."
)
_NOT_WRITTEN: Final = ApiError(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not take the change.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What one partition gets next."""

    assignment: ReplicaAssignment
    state: PartitionState


class Reassignments:
    """The moves of one reign."""

    def __init__(self, reign: Reign) -> None:
        self._reign = reign
        self._unwanted: dict[int, set[TopicPartition]] = {}
        """Replicas that their brokers are not known to have deleted."""

    def under_way(self) -> dict[TopicPartition, ReplicaAssignment]:
        return {
            partition: assignment
            for partition in self._reign.state.partitions()
            if is_moving(assignment := self._reign.state.replicas(partition))
        }

    async def alter(self, targets: Targets, *, may_resize: bool) -> dict[TopicPartition, ApiError]:
        """Begin, redirect or take back moves, each partition on its own."""
        results = dict.fromkeys(targets, NO_ERROR)
        steps: dict[TopicPartition, _Step] = {}
        for partition, target in targets.items():
            step = self._first_step(partition, target, may_resize=may_resize)
            if isinstance(step, ApiError):
                results[partition] = step
            elif step is not None:
                steps[partition] = step
        written = await self._take(steps)
        results |= dict.fromkeys([partition for partition in steps if partition not in written], _NOT_WRITTEN)
        await self.finish(written)
        return results

    def _first_step(
        self, partition: TopicPartition, target: Sequence[int] | None, *, may_resize: bool
    ) -> _Step | ApiError | None:
        """Return the step that begins the move; None if the partition has this assignment already."""
        cluster = self._reign.state
        versioned = cluster.state(partition)
        if versioned is None or partition.topic in cluster.topics_to_delete:
            return _UNKNOWN
        present = cluster.replicas(partition)
        planned = plan(present, target, cluster.brokers.keys(), may_resize=may_resize)
        if isinstance(planned, ApiError):
            return planned
        if planned == present:
            return None
        if is_reordered(present, planned):
            return _Step(assignment=planned, state=versioned.state)
        usable = cluster.usable_brokers(versioned.state.isr)
        state = begun_state(versioned.state, planned, usable, self._reign.epoch)
        return _NO_LEADER_LEFT if state is None else _Step(assignment=planned, state=state)

    async def finish(self, partitions: Iterable[TopicPartition]) -> None:
        """Complete the moves of those partitions that have arrived."""
        steps: dict[TopicPartition, _Step] = {}
        for partition in partitions:
            step = self._last_step(partition)
            if step is not None:
                steps[partition] = step
        if steps:
            await self._take(steps)

    def _last_step(self, partition: TopicPartition) -> _Step | None:
        cluster = self._reign.state
        versioned = cluster.state(partition)
        if versioned is None or partition.topic in cluster.topics_to_delete:
            return None
        assignment = cluster.replicas(partition)
        if not is_moving(assignment) or not is_complete(assignment, versioned.state):
            return None
        target = target_of(assignment)
        state = completed_state(versioned.state, target, cluster.reliable_brokers(), self._reign.epoch)
        return None if state is None else _Step(assignment=ReplicaAssignment(replicas=target), state=state)

    # Writing and telling

    async def _take(self, steps: Mapping[TopicPartition, _Step]) -> list[TopicPartition]:
        """Write steps, all of a topic at once; returns the partitions of those that were written."""
        topics: dict[str, dict[TopicPartition, _Step]] = {}
        for partition, step in steps.items():
            topics.setdefault(partition.topic, {})[partition] = step
        results = await self._reign.commit_many([list(self._operations(t, of)) for t, of in topics.items()])
        written: list[TopicPartition] = []
        for (topic, of_topic), result in zip(topics.items(), results, strict=True):
            if isinstance(result, MultiFailed):
                logger.error("A step of the reassignment of %s cannot be written: %s", topic, result.error.value)
                continue
            self._tell(of_topic, self._take_in(topic, of_topic, result))
            written += of_topic
        return written

    def _operations(self, topic: str, steps: Mapping[TopicPartition, _Step]) -> Iterable[Operation]:
        known = self._reign.state.topics[topic]
        partitions = {**known.assignment.partitions, **{p.partition: step.assignment for p, step in steps.items()}}
        assignment = replace(known.assignment, partitions=partitions)
        yield SetData(path=paths.topic(topic), data=znodes.encode_topic(assignment), version=known.version)
        for partition, step in steps.items():
            data, version = znodes.encode_partition_state(step.state), known.states[partition.partition].version
            yield SetData(path=paths.partition_state(partition), data=data, version=version)

    def _take_in(
        self, topic: str, steps: Mapping[TopicPartition, _Step], done: list[Done]
    ) -> dict[TopicPartition, set[int]]:
        """Remember what was written. Returns the brokers that had a replica before and have none now."""
        known = self._reign.state.topics[topic]
        dropped = {
            partition: set(known.assignment.partitions[partition.partition].replicas) - set(step.assignment.replicas)
            for partition, step in steps.items()
        }
        partitions = {**known.assignment.partitions, **{p.partition: step.assignment for p, step in steps.items()}}
        assert done[0].stat is not None, "a set has a stat"
        known.assignment, known.version = replace(known.assignment, partitions=partitions), done[0].stat.version
        remember(self._reign, list(steps), {p: step.state for p, step in steps.items()}, done)
        return dropped

    def _tell(self, steps: Mapping[TopicPartition, _Step], dropped: Mapping[TopicPartition, set[int]]) -> None:
        requests = self._reign.requests()
        for partition, step in steps.items():
            logger.info("%s: %s, %s", partition, step.assignment, step.state)
            assignment = step.assignment
            requests.tell_leadership(partition, set(assignment.replicas) - set(assignment.adding))
            requests.tell_leadership(partition, assignment.adding, is_new=True)
            for broker_id in assignment.replicas:
                self._unwanted.get(broker_id, set()).discard(partition)
            for broker_id in sorted(dropped[partition]):
                self._unwanted.setdefault(broker_id, set()).add(partition)
            requests.stop_replica(partition, sorted(dropped[partition]), delete=True)
        requests.tell_metadata(steps, self._reign.state.brokers)
        self._reign.send(requests)

    def tell_again(self, broker_id: int) -> None:
        """A broker can be reached again: tell it what it still has to delete."""
        requests = self._reign.requests()
        for partition in sorted(self._unwanted.get(broker_id, ())):
            if self._is_unwanted(broker_id, partition):
                requests.stop_replica(partition, [broker_id], delete=True)
        self._reign.send(requests)

    def _is_unwanted(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether that is still so: the topic may have been deleted, and created again."""
        versioned = self._reign.state.state(partition)
        return versioned is not None and broker_id not in self._reign.state.replicas(partition).replicas

    def on_response(self, broker_id: int, request: StopReplicaRequest, response: Message) -> None:
        """Note what a broker deleted."""
        unwanted = self._unwanted.get(broker_id)
        if unwanted is None or not isinstance(response, StopReplicaResponse) or response.error_code:
            return
        for error in response.partition_errors:
            if not error.error_code:
                unwanted.discard(TopicPartition(error.topic_name, error.partition_index))
