"""Creating topics and adding partitions: plans written to the metadata store and sent to the brokers.

A topic comes into being in one multi: its configuration, its assignment, and the states of its first partitions. Those
of a very large topic follow in further multis; a controller that dies in between leaves partitions without a state,
which its successor completes.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.cluster_state import TopicState
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.config_repository import ConfigRepository, notification_of, write_of
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.election import initial_state
from oncelog.coordinator.controller.partition_states import PARTITIONS_PER_MULTI, PARTITIONS_PER_PASS, elect, remember
from oncelog.coordinator.controller.propagation import send_new_partitions
from oncelog.coordinator.controller.replica_standing import first_state
from oncelog.coordinator.controller.topic_plan import TopicPlan
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Create, Done, MultiFailed, Operation, SetData, StoreError, Znode
from oncelog.coordinator.metadata_store.znodes import PartitionState, TopicAssignment
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition


async def collect(plans: Iterator[TopicPlan | ApiError]) -> list[TopicPlan | ApiError]:
    """Make the plans of one request. Between portions the loop has its turn."""
    collected: list[TopicPlan | ApiError] = []
    planned = 0
    for plan in plans:
        collected.append(plan)
        planned += plan.partition_count if isinstance(plan, TopicPlan) else 1
        if planned >= PARTITIONS_PER_PASS:
            planned = 0
            await asyncio.sleep(0)
    return collected


async def create_planned(
    context: ControllerContext, planned: Sequence[TopicPlan | ApiError], configs: ConfigRepository
) -> list[TopicPlan | ApiError]:
    """Create the topics that could be planned; what they are, or why not, in the order of the plans."""
    plans = [plan for plan in planned if isinstance(plan, TopicPlan)]
    created = iter(await create_topics(context, plans, configs))
    results: list[TopicPlan | ApiError] = []
    for plan in planned:
        error = next(created) if isinstance(plan, TopicPlan) else plan
        results.append(plan if error == NO_ERROR else error)
    return results


async def create_topics(
    context: ControllerContext, plans: Sequence[TopicPlan], configs: ConfigRepository
) -> list[ApiError]:
    """Create the planned topics, each on its own; the errors are in the order of the plans."""
    errors: list[ApiError] = []
    for portion in _portions(plans):
        errors += await _create_portion(context, portion, configs)
    return errors


def _portions(plans: Sequence[TopicPlan]) -> Iterator[list[TopicPlan]]:
    """Yield topics that are created in one go: between portions the loop has its turn."""
    portion: list[TopicPlan] = []
    partition_count = 0
    for plan in plans:
        if portion and partition_count + plan.partition_count > PARTITIONS_PER_PASS:
            yield portion
            portion, partition_count = [], 0
        portion.append(plan)
        partition_count += plan.partition_count
    if portion:
        yield portion


async def _create_portion(
    context: ControllerContext, plans: Sequence[TopicPlan], configs: ConfigRepository
) -> list[ApiError]:
    creations = [_Creation(context, plan) for plan in plans]
    existing = await context.session.get_many([creation.config.path for creation in creations])
    batches = [creation.operations(znode) for creation, znode in zip(creations, existing, strict=True)]
    results = await context.commit_many([list(batch) for batch in batches])
    created: list[str] = []
    errors: list[ApiError] = []
    for creation, result in zip(creations, results, strict=True):
        errors.append(_failure(creation.plan, result) if isinstance(result, MultiFailed) else NO_ERROR)
        if not isinstance(result, MultiFailed):
            creation.take_in(result, configs)
            created.append(creation.plan.name)
    await elect(context, list(_stateless(context, created)))
    await send_new_partitions(context, context.state.partitions(created))
    return errors


def _failure(plan: TopicPlan, failed: MultiFailed) -> ApiError:
    if failed.error is StoreError.NODE_EXISTS:
        return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{plan.name}' already exists.")
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"Topic '{plan.name}' was not created: {failed.error.value}")


def _stateless(context: ControllerContext, topics: Sequence[str]) -> Iterator[TopicPartition]:
    return (partition for partition in context.state.partitions(topics) if context.state.state(partition) is None)


class _Creation:
    """The first multi of one topic."""

    def __init__(self, context: ControllerContext, plan: TopicPlan) -> None:
        self._context = context
        self.plan = plan
        self.config = ConfigResource(ResourceType.TOPIC, plan.name)
        self._states = dict(self._first_states())

    def _first_states(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        for index in range(min(self.plan.partition_count, PARTITIONS_PER_MULTI)):
            replicas = self.plan.assignment.partitions[index].replicas
            partition = TopicPartition(self.plan.name, index)
            usable = self._context.state.usable_brokers(partition, replicas)
            state = initial_state(replicas, usable, self._context.epoch)
            if state is not None:
                yield partition, first_state(self._context.state, state)

    def operations(self, config_znode: Znode | None) -> Iterator[Operation]:
        """Yield the writes, the configuration first: a broker that sees the topic can read it.

        Its znode may be left over from a former topic of the name.
        """
        name = self.plan.name
        yield write_of(self.config, self.plan.configs, config_znode)
        yield Create(path=paths.topic(name), data=znodes.encode_topic(self.plan.assignment))
        yield Create(path=paths.partitions(name))
        for partition, state in self._states.items():
            yield Create(path=paths.partition(partition))
            yield Create(path=paths.partition_state(partition), data=znodes.encode_partition_state(state))
        if self.plan.configs or config_znode is not None:
            yield notification_of(self.config)

    def take_in(self, done: list[Done], configs: ConfigRepository) -> None:
        """Remember what was written."""
        config, topic = done[0].stat, done[1].stat
        assert config is not None, "a create or a set has a stat"
        assert topic is not None, "a create has a stat"
        configs.learn(self.config, self.plan.configs, config.mzxid)
        self._context.state.put_topic(
            self.plan.name, TopicState(assignment=self.plan.assignment, version=topic.version)
        )
        remember(self._context, list(self._states), self._states, done)


async def add_planned(context: ControllerContext, planned: Mapping[str, TopicAssignment | ApiError]) -> list[ApiError]:
    """Add the partitions that could be planned; the errors are in the order of the plans."""
    good = {topic: plan for topic, plan in planned.items() if isinstance(plan, TopicAssignment)}
    created = await create_partitions(context, good)
    return [created[topic] if topic in good else _error_of(plan) for topic, plan in planned.items()]


async def create_partitions(context: ControllerContext, planned: Mapping[str, TopicAssignment]) -> dict[str, ApiError]:
    """Give topics the partitions of their planned assignments."""
    batches = [[_assignment_write(context, topic, assignment)] for topic, assignment in planned.items()]
    results = await context.commit_many(batches)
    errors: dict[str, ApiError] = {}
    added: list[TopicPartition] = []
    for (topic, assignment), result in zip(planned.items(), results, strict=True):
        if isinstance(result, MultiFailed):
            errors[topic] = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"No partitions were added: {result.error.value}")
            continue
        errors[topic] = NO_ERROR
        added += _take_in_assignment(context, topic, assignment, result[0])
    await elect(context, added)
    await send_new_partitions(context, added)
    return errors


def _assignment_write(context: ControllerContext, topic: str, assignment: TopicAssignment) -> Operation:
    version = context.state.topics[topic].version
    return SetData(path=paths.topic(topic), data=znodes.encode_topic(assignment), version=version)


def _take_in_assignment(
    context: ControllerContext, topic: str, assignment: TopicAssignment, done: Done
) -> list[TopicPartition]:
    """Remember a topic's new assignment; returns the partitions that it did not have before."""
    known = context.state.topics[topic]
    added = [TopicPartition(topic, index) for index in assignment.partitions if index not in known.states]
    assert done.stat is not None, "a set has a stat"
    known.assignment, known.version = assignment, done.stat.version
    return added


def _error_of(plan: TopicAssignment | ApiError) -> ApiError:
    assert isinstance(plan, ApiError), "every good plan has a result"
    return plan
