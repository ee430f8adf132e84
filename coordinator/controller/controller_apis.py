"""``ControllerApis``: the requests of brokers and clients that only the controller carries out.

Each is one piece of work in the controller's queue: first what is decided and written, then, outside the queue, a wait
until the brokers have it. A broker that is not the controller refuses with NOT_CONTROLLER.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from oncelog.coordinator.controller.active_controller import ActiveController
from oncelog.coordinator.controller.alter_partition import alter_partition
from oncelog.coordinator.controller.api_error import NO_ERROR, TIMED_OUT, UNFINISHED, ApiError
from oncelog.coordinator.controller.config_changes import ConfigValidator
from oncelog.coordinator.controller.controlled_shutdown import move_leaderships_away
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.controller.controller_context import ControllerMoved
from oncelog.coordinator.controller.deadline import LEAST_SECONDS, deadline, seconds_to
from oncelog.coordinator.controller.eligible_changes import decide_eligible
from oncelog.coordinator.controller.event_queue import Lane, QueueEnded
from oncelog.coordinator.controller.feature_changes import FeatureUpdate, update_features
from oncelog.coordinator.controller.leader_elections import ElectionType, elect_leaders
from oncelog.coordinator.controller.reassignments import Targets
from oncelog.coordinator.controller.rejoining import refusal_of
from oncelog.coordinator.controller.topic_changes import add_planned, collect, create_planned
from oncelog.coordinator.controller.topic_deletion import deletion_result, name_taken, unknown_topic
from oncelog.coordinator.controller.topic_plan import NewPartitions, NewTopic, TopicPlan, plan_partitions, plan_topics
from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.coordinator.metadata_store.znodes import ReplicaAssignment, TopicAssignment
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from oncelog.protocol.topic_partition import TopicPartition

T = TypeVar("T")
Work: TypeAlias = Callable[[ActiveController], Awaitable[T]]
Admit: TypeAlias = Callable[[int], ApiError | None]
"""Counts partitions that are about to be created or deleted; returns why they must not be, or None."""
Refuse: TypeAlias = Callable[[ApiError], T]
"""Makes the response to a request that is refused."""

_DEFAULT_SECONDS: Final = 30.0


def admit_all(partitions: int) -> ApiError | None:
    """Return None: any number of partitions may be created and deleted."""
    return None


class ControllerApis:
    """The requests to one broker's controller. Time-outs are in seconds."""

    def __init__(self, controller: Controller, validator: ConfigValidator, rng: random.Random) -> None:
        self.controller = controller
        self._validator = validator
        self._rng = rng

    # Requests of brokers

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change the in-sync replicas of partitions, as their leader proposes."""

        async def alter(active: ActiveController) -> AlterPartitionResponse:
            altered = await alter_partition(active.context, request)
            await active.reassignments.finish(altered.partitions)
            await active.full_disks.relieve(list(altered.partitions))
            return altered.response

        def refuse(error: ApiError) -> AlterPartitionResponse:
            return AlterPartitionResponse(error_code=error.code)

        return await self._run_for_broker(alter, refuse)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move the leaderships of a broker that is about to stop to other brokers."""

        async def move(active: ActiveController) -> ControlledShutdownResponse:
            return await move_leaderships_away(active.context, request)

        def refuse(error: ApiError) -> ControlledShutdownResponse:
            return ControlledShutdownResponse(error_code=error.code)

        response = await self._run_for_broker(move, refuse)
        # The new leaders should know of it before the old one has stopped.
        await self._await_propagation(LEAST_SECONDS)
        return response

    # Requests of clients

    async def elect_leaders(
        self,
        partitions: Sequence[TopicPartition] | None,
        election: ElectionType,
        *,
        timeout_seconds: float = _DEFAULT_SECONDS,
    ) -> dict[TopicPartition, ApiError] | ApiError:
        """Hold elections for these partitions, or for all (None).

        Returns the error of each partition, or that of the whole request.
        """

        async def elect(active: ActiveController) -> dict[TopicPartition, ApiError] | ApiError:
            return await elect_leaders(active.context, partitions, election)

        return await self._run_for_client(elect, _itself, deadline(timeout_seconds))

    async def alter_reassignments(
        self, targets: Targets, *, may_resize: bool = True, timeout_seconds: float = _DEFAULT_SECONDS
    ) -> dict[TopicPartition, ApiError] | ApiError:
        """Begin, redirect or cancel reassignments.

        Returns the error of each partition, or that of the whole request.
        """

        async def alter(active: ActiveController) -> dict[TopicPartition, ApiError] | ApiError:
            return await active.reassignments.alter(targets, may_resize=may_resize)

        return await self._run_for_client(alter, _itself, deadline(timeout_seconds))

    async def reassignments(
        self, *, timeout_seconds: float = _DEFAULT_SECONDS
    ) -> dict[TopicPartition, ReplicaAssignment] | ApiError:
        """Return the partitions that are being reassigned."""

        async def list_them(active: ActiveController) -> dict[TopicPartition, ReplicaAssignment] | ApiError:
            return active.reassignments.under_way()

        return await self._run_for_client(list_them, _itself, deadline(timeout_seconds))

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_seconds: float = _DEFAULT_SECONDS,
        admit: Admit = admit_all,
    ) -> list[TopicPlan | ApiError]:
        """Create topics, or only validate them; return the plan of each or its error, in their order.

        REQUEST_TIMED_OUT: the topic was created but not all brokers have it in time; or the creation has begun, and may
        still succeed, but the metadata store does not respond.
        """
        until = deadline(timeout_seconds)

        async def create(active: ActiveController) -> list[TopicPlan | ApiError]:
            context, defaults = active.context, self.controller.settings.defaults
            planned = await collect(plan_topics(topics, context.state, defaults, self._validator, self._rng))
            deleted, awaited = context.state.topics_to_delete, active.deletions.awaited_brokers
            planned = [
                name_taken(topic.name, awaited(topic.name))
                if isinstance(plan, ApiError) and plan.code is ErrorCode.TOPIC_ALREADY_EXISTS and topic.name in deleted
                else plan
                for topic, plan in zip(topics, planned, strict=True)
            ]
            planned = [each if isinstance(each, ApiError) else admit(each.partition_count) or each for each in planned]
            if validate_only:
                return planned
            return await create_planned(context, planned, self.controller.stored.configs)

        def refuse(error: ApiError) -> list[TopicPlan | ApiError]:
            return [error for _ in topics]

        results = await self._run_for_client(create, refuse, until)
        created = any(isinstance(each, TopicPlan) for each in results)
        if validate_only or not created or await self._propagated(until):
            return results
        return [TIMED_OUT if isinstance(each, TopicPlan) else each for each in results]

    async def delete_topics(
        self, topics: Sequence[str], *, timeout_seconds: float, admit: Admit = admit_all
    ) -> list[ApiError]:
        """Delete topics by name, and wait until no replica is left of them.

        REQUEST_TIMED_OUT: the deletion was accepted and goes on.
        """
        until = deadline(timeout_seconds)

        async def begin(active: ActiveController) -> list[ApiError | asyncio.Future[bool]]:
            state = active.context.state
            existing = [topic for topic in dict.fromkeys(topics) if topic in state.topics]
            begun = [topic for topic in existing if topic not in state.topics_to_delete]
            counts = {topic: len(state.topics[topic].assignment.partitions) for topic in begun}
            refused = {topic: error for topic, count in counts.items() if (error := admit(count)) is not None}
            waiting = {topic: active.deletions.finished(topic) for topic in existing if topic not in refused}
            await active.deletions.begin([topic for topic in begun if topic not in refused])
            return [waiting.get(topic) or refused.get(topic) or unknown_topic(topic) for topic in topics]

        def refuse(error: ApiError) -> list[ApiError | asyncio.Future[bool]]:
            return [error for _ in topics]

        begun = await self._run_for_client(begin, refuse, until)
        waiting = [entry for entry in begun if isinstance(entry, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting, timeout=max(0.0, min(timeout_seconds, seconds_to(until))))
        active = self.controller.active
        awaited = {} if active is None else {topic: active.deletions.awaited_brokers(topic) for topic in topics}
        return [
            deletion_result(entry, awaited.get(topic, ())) if isinstance(entry, asyncio.Future) else entry
            for topic, entry in zip(topics, begun, strict=True)
        ]

    async def create_partitions(
        self,
        requests: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        timeout_seconds: float = _DEFAULT_SECONDS,
        admit: Admit = admit_all,
    ) -> list[ApiError]:
        """Add partitions to topics; return the errors in the order of the requests, which name different topics."""
        until = deadline(timeout_seconds)

        async def create(active: ActiveController) -> list[ApiError]:
            planned = [plan_partitions(request, active.context.state) for request in requests]
            planned = [
                plan if isinstance(plan, ApiError) else admit(_added_count(plan, request, active)) or plan
                for plan, request in zip(planned, requests, strict=True)
            ]
            if validate_only:
                return [plan if isinstance(plan, ApiError) else NO_ERROR for plan in planned]
            topics = [request.topic for request in requests]
            return await add_planned(active.context, dict(zip(topics, planned, strict=True)))

        def refuse(error: ApiError) -> list[ApiError]:
            return [error for _ in requests]

        results = await self._run_for_client(create, refuse, until)
        if validate_only or NO_ERROR not in results or await self._propagated(until):
            return results
        return [TIMED_OUT if each == NO_ERROR else each for each in results]

    async def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_seconds: float = _DEFAULT_SECONDS,
    ) -> list[ApiError] | ApiError:
        """Finalise other levels of all these features, or of none.

        Returns the errors in the order of the updates, or that of the whole request.
        """

        async def update(active: ActiveController) -> list[ApiError] | ApiError:
            stored = self.controller.stored
            changed = stored.features_changed
            before = stored.features.keeps_eligible
            errors = await update_features(
                active.context, stored.features, updates, changed, validate_only=validate_only
            )
            if stored.features.keeps_eligible != before:
                await decide_eligible(active.context)
            return errors

        return await self._run_for_client(update, _itself, deadline(timeout_seconds))

    async def _propagated(self, until: float) -> bool:
        """Wait until all reachable brokers have what has changed: a client may send its next request to any of them."""
        return await self._await_propagation(max(seconds_to(until), LEAST_SECONDS))

    async def _await_propagation(self, seconds: float) -> bool:
        active = self.controller.active
        return active is None or await active.context.await_responses(seconds)

    # The queue

    async def _run_for_broker(self, work: Work[T], refuse: Refuse[T]) -> T:
        """Run ``work`` in the cluster's lane and return its result, or what ``refuse`` makes of the error."""
        return await self._run(self.controller.queue.cluster, work, refuse, None)

    async def _run_for_client(self, work: Work[T], refuse: Refuse[T], until: float) -> T:
        """Run ``work`` in the clients' lane and return its result, or what ``refuse`` makes of the error.

        At the time ``until`` of the loop it is refused with REQUEST_TIMED_OUT: work that has begun goes on.
        """
        return await self._run(self.controller.queue.clients, work, refuse, until)

    async def _run(self, lane: Lane, work: Work[T], refuse: Refuse[T], until: float | None) -> T:
        controller = self.controller

        async def work_if_active() -> T:
            return refuse(controller.refusal) if controller.active is None else await work(controller.active)

        if not controller.is_active:
            return refuse(controller.refusal)
        try:
            return await lane.request(work_if_active, until)
        except (ControllerMoved, QueueEnded, StoreUnavailable) as error:
            return refuse(refusal_of(error))
        except TimeoutError:
            return refuse(UNFINISHED)


def _added_count(plan: TopicAssignment, request: NewPartitions, active: ActiveController) -> int:
    """Return how many partitions a plan adds to its topic."""
    return len(plan.partitions) - len(active.context.state.topics[request.topic].assignment.partitions)


def _itself(error: ApiError) -> ApiError:
    return error
