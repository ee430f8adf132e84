"""Changes of partitions' states, decided and written to the metadata store.

What is decided lies in ``election`` and is pure. Here decisions are written, each conditional on the version of the
state that it was made on, many in one multi. A state that another writer changed meanwhile is read again and decided
anew.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from oncelog.coordinator.controller import eligible_leaders, replica_standing
from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.cluster_state import VersionedState
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.election import initial_state, is_unclean, next_state
from oncelog.coordinator.controller.lone_replicas import LoneLoss, about_lone_losses
from oncelog.coordinator.controller.state_changes import StateChanges
from oncelog.coordinator.controller.unclean_losses import UncleanLoss, about_unclean_losses
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Create, Done, MultiFailed, Operation, SetData
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

Decide: TypeAlias = Callable[[TopicPartition], PartitionState | None]
"""The state that a partition must get; None if it can stay as it is."""

PARTITIONS_PER_MULTI: Final = 200
"""Keeps a multi well below ZooKeeper's limit of 1 MiB."""
PARTITIONS_PER_PASS: Final = 400
"""Decided and written in one turn of the loop, so that a large topic does not stall the broker."""

_ATTEMPTS: Final = 5


def chunks(items: Sequence[_T], size: int = PARTITIONS_PER_MULTI) -> Iterator[Sequence[_T]]:
    """Yield the items in slices of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def elect(context: ControllerContext, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Give every partition the leader and ISR that it needs now.

    Return the partitions whose state has changed, or what they wait for without a leader.
    """
    requested = list(partitions)
    changed = await change_states(context, requested, lambda partition: _decide(context, partition))
    if not context.state.keeps_eligible() and not context.state.waiting:
        return changed
    waiting: list[TopicPartition] = []
    for number, portion in enumerate(chunks(requested, PARTITIONS_PER_PASS)):
        if number:
            await asyncio.sleep(0)
        waiting += [partition for partition in portion if _follow_wait(context, partition)]
    return list(dict.fromkeys([*changed, *waiting])) if waiting else changed


def _follow_wait(context: ControllerContext, partition: TopicPartition) -> bool:
    """Note what a partition waits for, if it has no leader; return whether that has changed."""
    cluster = context.state
    versioned = cluster.state(partition)
    has_leader = versioned is None or versioned.state.leader != NO_LEADER
    if versioned is None or has_leader or not cluster.keeps_eligible() or is_being_deleted(context, partition):
        cluster.log_ends.forget(partition)
        return context.waits.forget(partition)
    standing = replica_standing.standing_of(cluster, partition, context.epoch)
    return context.waits.follow(partition, versioned.state, standing, cluster.recovery_strategy(partition.topic))


async def change_states(
    context: ControllerContext, partitions: Iterable[TopicPartition], decide: Decide
) -> list[TopicPartition]:
    """Write what ``decide`` returns for each partition; return the partitions whose state changed.

    Partitions that are being deleted, or whose state cannot be decoded, are left out.
    """
    remaining = [partition for partition in partitions if not is_being_deleted(context, partition)]
    changed: list[TopicPartition] = []
    changes = StateChanges()
    for number, portion in enumerate(chunks(remaining, PARTITIONS_PER_PASS)):
        if number:
            await asyncio.sleep(0)  # Where no state changes, nothing else yields to the loop.
        changed += await _change_portion(context, list(portion), decide, changes)
    log_changes(changes)
    return changed


def log_changes(changes: StateChanges) -> None:
    """Log what was written, in few lines."""
    for line in changes.lines():
        logger.info("%s", line)


async def _change_portion(
    context: ControllerContext, remaining: list[TopicPartition], decide: Decide, changes: StateChanges
) -> list[TopicPartition]:
    """Write what is decided of a portion. Return the partitions whose state changed, and add to ``changes``."""
    changed: list[TopicPartition] = []
    for _ in range(_ATTEMPTS):
        remaining = [partition for partition in remaining if not context.state.is_set_aside(partition)]
        if not remaining:
            return changed
        decided = {partition: state for partition in remaining if (state := decide(partition)) is not None}
        before = {partition: context.state.state(partition) for partition in decided}
        remaining = await _write(context, decided)
        written = sorted(decided.keys() - set(remaining))
        known = {partition: versioned for partition in written if (versioned := before[partition]) is not None}
        for partition, versioned in known.items():
            changes.add(partition, versioned.state, decided[partition])
        _report_losses(context, known, decided)
        changed += [partition for partition in decided if partition not in remaining]
        await read_again(context, remaining)
    logger.error("Gave up electing leaders of %s: their states cannot be written", ", ".join(map(str, remaining)))
    return changed


def _report_losses(
    context: ControllerContext,
    before: Mapping[TopicPartition, VersionedState],
    after: Mapping[TopicPartition, PartitionState],
) -> None:
    """Log which partitions have a new leader that may lack acknowledged records."""
    lone_losses: list[LoneLoss] = []
    unclean_losses: list[UncleanLoss] = []
    for partition, known in before.items():
        elected = after[partition]
        if elected.leader == NO_LEADER or elected.leader_epoch == known.state.leader_epoch:
            continue
        broken = replica_standing.broken_members(context.state, known) if context.state.keeps_eligible() else ()
        if is_unclean(known.state, elected, broken):
            context.state.on_unclean_election()
            unclean_losses.append(UncleanLoss(elected.leader, known.state.isr, known.state.elr, partition))
        elif elected.leader in broken and len(context.state.replicas(partition).replicas) == 1:
            context.state.on_unclean_election()
            ends = context.state.log_ends.of(partition, known.state.leader_epoch, context.state.broker_epochs())
            end = ends.get(elected.leader)
            lone_losses.append(LoneLoss(partition, elected.leader, None if end is None else end.offset))
    for line in (*about_unclean_losses(unclean_losses), *about_lone_losses(lone_losses)):
        logger.warning("%s", line)


def is_being_deleted(context: ControllerContext, partition: TopicPartition) -> bool:
    """Return whether the deletion of the partition's topic was accepted."""
    return partition.topic in context.state.topics_to_delete


def _decide(context: ControllerContext, partition: TopicPartition) -> PartitionState | None:
    cluster = context.state
    replicas, versioned = cluster.replicas(partition).replicas, cluster.state(partition)
    if versioned is None:
        first = initial_state(replicas, cluster.usable_brokers(partition, replicas), context.epoch)
        return None if first is None else replica_standing.first_state(cluster, first)
    if cluster.keeps_eligible():
        return eligible_leaders.next_state(
            versioned.state,
            replica_standing.standing_of(cluster, partition, context.epoch),
            leader_restarted=replica_standing.leader_restarted(cluster, versioned),
            strategy=cluster.recovery_strategy(partition.topic),
            waited=context.waits.is_over(partition, versioned.state.leader_epoch),
        )
    known = versioned._replace(state=eligible_leaders.without_eligible(versioned.state))
    decided = next_state(
        known.state,
        replicas,
        cluster.usable_members(partition, known),
        context.epoch,
        leader_restarted=cluster.leader_restarted(known),
        unclean_allowed=cluster.unclean_election_allowed(partition.topic),
    )
    if decided is None and (versioned.state.elr or versioned.state.last_leader is not None):
        return replace(known.state, leader_epoch=known.state.leader_epoch + 1, controller_epoch=context.epoch)
    return decided


async def _write(context: ControllerContext, decided: dict[TopicPartition, PartitionState]) -> list[TopicPartition]:
    """Write states; return the partitions whose state another writer changed first."""
    groups = list(chunks(list(decided)))
    existing = await _existing_parents(context, [p for p in decided if context.state.state(p) is None])
    batches = [
        [
            operation
            for partition in group
            for operation in _operations(context, partition, decided[partition], existing)
        ]
        for group in groups
    ]
    results = await context.commit_many(batches)
    conflicts: list[TopicPartition] = []
    for group, result in zip(groups, results, strict=True):
        if isinstance(result, MultiFailed):
            logger.warning("Deciding %d partition states again: %s", len(group), result.error.value)
            conflicts += group
        else:
            remember(context, group, decided, result)
    return conflicts


def _operations(
    context: ControllerContext, partition: TopicPartition, state: PartitionState, existing: set[str]
) -> Iterator[Operation]:
    data, versioned = znodes.encode_partition_state(state), context.state.state(partition)
    if versioned is not None:
        yield SetData(path=paths.partition_state(partition), data=data, version=versioned.version)
        return
    for parent in (paths.partitions(partition.topic), paths.partition(partition)):
        if parent not in existing:
            existing.add(parent)
            yield Create(path=parent)
    yield Create(path=paths.partition_state(partition), data=data)


async def _existing_parents(context: ControllerContext, partitions: Sequence[TopicPartition]) -> set[str]:
    parents = [paths.partition(partition) for partition in partitions]
    parents += dict.fromkeys(paths.partitions(partition.topic) for partition in partitions)
    found = await context.session.get_many(parents)
    return {path for path, znode in zip(parents, found, strict=True) if znode is not None}


def remember(
    context: ControllerContext,
    partitions: Sequence[TopicPartition],
    states: Mapping[TopicPartition, PartitionState],
    done: list[Done],
) -> None:
    """Note in the context the states that a multi has written."""
    stats = {entry.path: entry.stat for entry in done}
    for partition in partitions:
        stat = stats[paths.partition_state(partition)]
        assert stat is not None, "a create or a set has a stat"
        versioned = VersionedState(state=states[partition], version=stat.version, mzxid=stat.mzxid)
        context.state.put_state(partition, versioned)


async def read_again(context: ControllerContext, partitions: Sequence[TopicPartition]) -> None:
    """Read the states that another writer has changed."""
    found = await context.session.get_many([paths.partition_state(partition) for partition in partitions])
    for partition, znode in zip(partitions, found, strict=True):
        if znode is not None:
            context.state.take_state(partition, znode)
