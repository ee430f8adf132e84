"""Reassignments of partitions to other brokers, written to the metadata store and sent to the brokers.

A step of a reassignment (decided in ``reassignment``) is one multi: the topic's assignment and the states of its
moving partitions, so that no controller ever finds one without the other. What is under way is in the assignments
themselves; a new controller goes on with it.

A replica that is removed gets StopReplica after its partition has another state without it. A broker that cannot be
reached gets it again when it responds, while this controller epoch lasts.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.cluster_state import VersionedState
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.eligible_leaders import judged_as_before
from oncelog.coordinator.controller.partition_states import elect, remember
from oncelog.coordinator.controller.propagation import send_changes
from oncelog.coordinator.controller.reassignment import (
    about_step,
    begun_state,
    completed_state,
    is_complete,
    is_moving,
    is_reordered,
    plan,
    refused_drop,
    target_of,
    waiting_state,
)
from oncelog.coordinator.controller.replica_standing import broken_members, completed, fit_to_lead
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Done, MultiFailed, Operation, SetData
from oncelog.coordinator.metadata_store.znodes import PartitionState, ReplicaAssignment
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.stop_replica import StopReplicaResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""The replicas that partitions shall have; None cancels the reassignment that is under way."""

_UNKNOWN: Final = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_NO_LEADER_LEFT: Final = ApiError(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "None of the replicas that would remain is in sync and up now. Include one that is, or wait until one is back.",
)
_NOT_WRITTEN: Final = ApiError(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not take the change.")


class _Step(NamedTuple):
    """The next assignment and state of one partition."""

    assignment: ReplicaAssignment
    state: PartitionState


class Reassignments:
    """The reassignments of one controller epoch."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._unwanted: dict[int, set[TopicPartition]] = {}
        """By broker, removed replicas that it is not known to have deleted."""

    def under_way(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions that are being reassigned."""
        return {
            partition: assignment
            for partition in self._context.state.partitions()
            if is_moving(assignment := self._context.state.replicas(partition))
        }

    async def alter(self, targets: Targets, *, may_resize: bool) -> dict[TopicPartition, ApiError]:
        """Begin, redirect or cancel reassignments; return the error of each partition."""
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
        await self._wait_anew(written)
        return results

    async def _wait_anew(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions that have no leader wait for one in their new leader epoch."""
        states = ((partition, self._context.state.state(partition)) for partition in partitions)
        waiting = [partition for partition, known in states if known is not None and known.state.leader == NO_LEADER]
        if not waiting:
            return
        changed = await elect(self._context, waiting)
        await send_changes(self._context, changed, changed)

    def _first_step(
        self, partition: TopicPartition, target: Sequence[int] | None, *, may_resize: bool
    ) -> _Step | ApiError | None:
        """Return the step that begins the reassignment; None if the partition has this assignment already."""
        cluster = self._context.state
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
            return _Step(assignment=planned, state=self._as_judged(versioned.state, versioned))
        usable = cluster.usable_brokers(partition, fit_to_lead(cluster, versioned, versioned.state.isr))
        fit = fit_to_lead(cluster, versioned, usable)
        state = begun_state(versioned.state, planned, fit, self._context.epoch)
        if state is not None:
            refused = None
            if cluster.keeps_eligible():
                broken = broken_members(cluster, versioned)
                refused = refused_drop(versioned.state, planned, cluster.min_isr(partition.topic), broken)
            return refused or self._step(partition, planned, state)
        if versioned.state.leader != NO_LEADER:
            return _NO_LEADER_LEFT
        waiting = waiting_state(versioned.state, planned, self._context.epoch)
        if isinstance(waiting, ApiError):
            return waiting
        return _Step(assignment=planned, state=self._as_judged(waiting, versioned))

    def _as_judged(self, state: PartitionState, versioned: VersionedState) -> PartitionState:
        """Return a state that is written anew, with what its members are judged by."""
        if not self._context.state.keeps_eligible():
            return state
        return judged_as_before(state, versioned.state, versioned.mzxid)

    async def finish(self, partitions: Iterable[TopicPartition]) -> None:
        """Complete the reassignments whose new replicas are all in sync."""
        steps: dict[TopicPartition, _Step] = {}
        for partition in partitions:
            step = self._last_step(partition)
            if step is not None:
                steps[partition] = step
        if steps:
            await self._take(steps)

    def _last_step(self, partition: TopicPartition) -> _Step | None:
        cluster = self._context.state
        versioned = cluster.state(partition)
        if versioned is None or partition.topic in cluster.topics_to_delete:
            return None
        assignment = cluster.replicas(partition)
        if not is_moving(assignment) or not is_complete(assignment, versioned.state):
            return None
        target = target_of(assignment)
        fit = fit_to_lead(cluster, versioned, cluster.reliable_brokers(partition))
        state = completed_state(versioned.state, target, fit, self._context.epoch)
        return None if state is None else self._step(partition, ReplicaAssignment(replicas=target), state)

    def _step(self, partition: TopicPartition, assignment: ReplicaAssignment, state: PartitionState) -> _Step:
        replicas, epoch = assignment.replicas, self._context.epoch
        return _Step(
            assignment=assignment,
            state=completed(self._context.state, partition, state, epoch, replicas=replicas),
        )

    # Writing and sending

    async def _take(self, steps: Mapping[TopicPartition, _Step]) -> list[TopicPartition]:
        """Write steps, all of a topic at once; return the partitions of those that were written."""
        topics: dict[str, dict[TopicPartition, _Step]] = {}
        for partition, step in steps.items():
            topics.setdefault(partition.topic, {})[partition] = step
        results = await self._context.commit_many([list(self._operations(t, of)) for t, of in topics.items()])
        written: list[TopicPartition] = []
        for (topic, of_topic), result in zip(topics.items(), results, strict=True):
            if isinstance(result, MultiFailed):
                logger.error("A step of the reassignment of %s cannot be written: %s", topic, result.error.value)
                continue
            self._send(of_topic, self._take_in(topic, of_topic, result))
            written += of_topic
        return written

    def _operations(self, topic: str, steps: Mapping[TopicPartition, _Step]) -> Iterable[Operation]:
        known = self._context.state.topics[topic]
        partitions = {**known.assignment.partitions, **{p.partition: step.assignment for p, step in steps.items()}}
        assignment = replace(known.assignment, partitions=partitions)
        yield SetData(path=paths.topic(topic), data=znodes.encode_topic(assignment), version=known.version)
        for partition, step in steps.items():
            data, version = znodes.encode_partition_state(step.state), known.states[partition.partition].version
            yield SetData(path=paths.partition_state(partition), data=data, version=version)

    def _take_in(
        self, topic: str, steps: Mapping[TopicPartition, _Step], done: list[Done]
    ) -> dict[TopicPartition, set[int]]:
        """Note what was written; return for each partition the brokers that have no replica any more."""
        known = self._context.state.topics[topic]
        dropped = {
            partition: set(known.assignment.partitions[partition.partition].replicas) - set(step.assignment.replicas)
            for partition, step in steps.items()
        }
        partitions = {**known.assignment.partitions, **{p.partition: step.assignment for p, step in steps.items()}}
        assert done[0].stat is not None, "a set has a stat"
        known.assignment, known.version = replace(known.assignment, partitions=partitions), done[0].stat.version
        remember(self._context, list(steps), {p: step.state for p, step in steps.items()}, done)
        return dropped

    def _send(self, steps: Mapping[TopicPartition, _Step], dropped: Mapping[TopicPartition, set[int]]) -> None:
        requests = self._context.new_requests()
        for partition, step in steps.items():
            logger.info("%s: %s", partition, about_step(step.assignment, step.state))
            assignment = step.assignment
            requests.add_leader_and_isr(partition, set(assignment.replicas) - set(assignment.adding))
            requests.add_leader_and_isr(partition, assignment.adding, is_new=True)
            for broker_id in assignment.replicas:
                self._unwanted.get(broker_id, set()).discard(partition)
            for broker_id in sorted(dropped[partition]):
                self._unwanted.setdefault(broker_id, set()).add(partition)
            requests.add_stop_replica(partition, sorted(dropped[partition]), delete=True)
        requests.add_update_metadata(steps, self._context.state.brokers)
        self._context.send(requests)

    def resend_deletions(self, broker_id: int) -> None:
        """Send a broker again what it still has to delete: it can be reached now."""
        requests = self._context.new_requests()
        for partition in sorted(self._unwanted.get(broker_id, ())):
            if self._is_unwanted(broker_id, partition):
                requests.add_stop_replica(partition, [broker_id], delete=True)
        self._context.send(requests)

    def _is_unwanted(self, broker_id: int, partition: TopicPartition) -> bool:
        """Return whether the broker is no replica: the topic may have been deleted and created again."""
        versioned = self._context.state.state(partition)
        return versioned is not None and broker_id not in self._context.state.replicas(partition).replicas

    def on_response(self, broker_id: int, response: Message) -> None:
        """Note what a broker has deleted."""
        unwanted = self._unwanted.get(broker_id)
        if unwanted is None or not isinstance(response, StopReplicaResponse) or response.error_code:
            return
        for error in response.partition_errors:
            if not error.error_code:
                unwanted.discard(TopicPartition(error.topic_name, error.partition_index))
