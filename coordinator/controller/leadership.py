"""Giving partitions their leaders: elections carried out in the metadata store, and told to the brokers.

What is decided lies in ``election``; here decisions are written, each conditional on the version of the state that it
was decided on, many in one multi. A state that somebody changed meanwhile is read again and decided anew.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from oncelog.coordinator.controller.cluster_state import VersionedState
from oncelog.coordinator.controller.election import initial_state, next_state
from oncelog.coordinator.controller.reign import Reign
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Create, Done, MultiFailed, Operation, SetData
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

UncleanAllowed: TypeAlias = Callable[[str], bool]
"""Whether a topic may be led by a replica that is not in sync."""

Decide: TypeAlias = Callable[[TopicPartition], PartitionState | None]
"""The state that a partition must get; None if it can stay as it is."""

PARTITIONS_PER_MULTI: Final = 200
"""Keeps a multi well below the megabyte that ZooKeeper takes."""
PARTITIONS_PER_PASS: Final = 400
"""Decided and written at once. Between passes the loop has its turn, so that a large topic stops nothing else."""


_ATTEMPTS: Final = 5


def chunks(items: Sequence[_T], size: int = PARTITIONS_PER_MULTI) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def elect(
    reign: Reign, partitions: Iterable[TopicPartition], unclean_allowed: UncleanAllowed
) -> list[TopicPartition]:
    """Give every partition the state that it needs now. Returns those whose state changed."""
    return await change_states(reign, partitions, lambda partition: _decide(reign, partition, unclean_allowed))


async def change_states(reign: Reign, partitions: Iterable[TopicPartition], decide: Decide) -> list[TopicPartition]:
    """Write what is decided of each partition, unless it is being deleted or set aside. Returns those whose state
    changed."""
    remaining = [partition for partition in partitions if not _is_being_deleted(reign, partition)]
    changed: list[TopicPartition] = []
    for number, portion in enumerate(chunks(remaining, PARTITIONS_PER_PASS)):
        if number:
            await asyncio.sleep(0)  # Where nothing changes, nothing is waited for.
        changed += await _change_portion(reign, list(portion), decide)
    return changed


async def _change_portion(reign: Reign, remaining: list[TopicPartition], decide: Decide) -> list[TopicPartition]:
    changed: list[TopicPartition] = []
    for _ in range(_ATTEMPTS):
        remaining = [partition for partition in remaining if not reign.state.is_set_aside(partition)]
        if not remaining:
            return changed
        decided = {partition: state for partition in remaining if (state := decide(partition)) is not None}
        remaining = await _write(reign, decided)
        changed += [partition for partition in decided if partition not in remaining]
        await read_again(reign, remaining)
    logger.error("Gave up electing leaders of %s: their states cannot be written", ", ".join(map(str, remaining)))
    return changed


def _is_being_deleted(reign: Reign, partition: TopicPartition) -> bool:
    return partition.topic in reign.state.topics_to_delete


def _decide(reign: Reign, partition: TopicPartition, unclean_allowed: UncleanAllowed) -> PartitionState | None:
    replicas, versioned = reign.state.replicas(partition).replicas, reign.state.state(partition)
    if versioned is None:
        return initial_state(replicas, reign.state.usable_brokers(replicas), reign.epoch)
    return next_state(
        versioned.state,
        replicas,
        reign.state.usable_members(versioned),
        reign.epoch,
        leader_restarted=reign.state.leader_restarted(versioned),
        unclean_allowed=unclean_allowed(partition.topic),
    )


async def _write(reign: Reign, decided: dict[TopicPartition, PartitionState]) -> list[TopicPartition]:
    """Write states; returns the partitions that somebody else's write came before."""
    groups = list(chunks(list(decided)))
    existing = await _existing_parents(reign, [p for p in decided if reign.state.state(p) is None])
    batches = [
        [operation for partition in group for operation in _operations(reign, partition, decided[partition], existing)]
        for group in groups
    ]
    results = await reign.commit_many(batches)
    conflicts: list[TopicPartition] = []
    for group, result in zip(groups, results, strict=True):
        if isinstance(result, MultiFailed):
            logger.warning("Deciding %d partition states again: %s", len(group), result.error.value)
            conflicts += group
        else:
            remember(reign, group, decided, result)
    return conflicts


def _operations(
    reign: Reign, partition: TopicPartition, state: PartitionState, existing: set[str]
) -> Iterator[Operation]:
    data, versioned = znodes.encode_partition_state(state), reign.state.state(partition)
    if versioned is not None:
        yield SetData(path=paths.partition_state(partition), data=data, version=versioned.version)
        return
    for parent in (paths.partitions(partition.topic), paths.partition(partition)):
        if parent not in existing:
            existing.add(parent)
            yield Create(path=parent)
    yield Create(path=paths.partition_state(partition), data=data)


async def _existing_parents(reign: Reign, partitions: Sequence[TopicPartition]) -> set[str]:
    parents = [paths.partition(partition) for partition in partitions]
    parents += dict.fromkeys(paths.partitions(partition.topic) for partition in partitions)
    found = await reign.session.get_many(parents)
    return {path for path, znode in zip(parents, found, strict=True) if znode is not None}


def remember(
    reign: Reign,
    partitions: Sequence[TopicPartition],
    states: Mapping[TopicPartition, PartitionState],
    done: list[Done],
) -> None:
    """Take into the reign's knowledge what a multi wrote."""
    stats = {entry.path: entry.stat for entry in done}
    for partition in partitions:
        stat = stats[paths.partition_state(partition)]
        assert stat is not None, "a create or a set has a stat"
        versioned = VersionedState(state=states[partition], version=stat.version, mzxid=stat.mzxid)
        reign.state.put_state(partition, versioned)


async def read_again(reign: Reign, partitions: Sequence[TopicPartition]) -> None:
    """Learn the states that somebody else has written."""
    found = await reign.session.get_many([paths.partition_state(partition) for partition in partitions])
    for partition, znode in zip(partitions, found, strict=True):
        if znode is not None:
            reign.state.take_state(partition, znode)


async def tell(reign: Reign, leadership: Iterable[TopicPartition], metadata: Iterable[TopicPartition]) -> None:
    """Tell leaderships to their replicas, and to all brokers who is alive and what partitions look like now.

    Between portions the loop has its turn.
    """
    for _ in _tell(reign, list(leadership), list(metadata)):
        await asyncio.sleep(0)


def tell_now(reign: Reign, leadership: Iterable[TopicPartition], metadata: Iterable[TopicPartition]) -> None:
    """The same in this turn of the loop."""
    for _ in _tell(reign, list(leadership), list(metadata)):
        pass


def _tell(reign: Reign, leadership: Sequence[TopicPartition], metadata: Sequence[TopicPartition]) -> Iterator[None]:
    for number, portion in enumerate(chunks(leadership, PARTITIONS_PER_PASS)):
        if number:
            yield
        requests = reign.requests()
        for partition in portion:
            if reign.state.state(partition) is not None and not _is_being_deleted(reign, partition):
                requests.tell_leadership(partition, reign.state.replicas(partition).replicas)
        reign.send(requests)
    for number, portion in enumerate(chunks(metadata, PARTITIONS_PER_PASS) if metadata else [()]):
        if number:
            yield
        requests = reign.requests()
        requests.tell_metadata(portion, reign.state.brokers)
        reign.send(requests)


async def tell_new(reign: Reign, partitions: Iterable[TopicPartition]) -> None:
    """Tell new partitions to their live replicas, portion by portion, and then to all brokers as metadata."""
    told = list(partitions)
    for portion in chunks(told, PARTITIONS_PER_PASS):
        requests = reign.requests()
        for partition in portion:
            if reign.state.state(partition) is not None:
                requests.tell_leadership(partition, reign.state.replicas(partition).replicas, is_new=True)
        reign.send(requests)
        await asyncio.sleep(0)  # Between portions the loop has its turn.
    requests = reign.requests()
    requests.tell_metadata(told, reign.state.brokers)
    reign.send(requests)


def tell_all(reign: Reign, partitions: Iterable[TopicPartition]) -> None:
    """Tell partitions' states to their live replicas, and to all brokers as metadata."""
    requests, told = reign.requests(), list(partitions)
    for partition in told:
        if reign.state.state(partition) is not None:
            requests.tell_leadership(partition, reign.state.replicas(partition).replicas)
    requests.tell_metadata(told, reign.state.brokers)
    reign.send(requests)


def tell_topics(reign: Reign, names: Iterable[str]) -> None:
    """Tell everything about these topics, as far as they exist and are not being deleted, once more."""
    state = reign.state
    existing = [name for name in names if name in state.topics and name not in state.topics_to_delete]
    tell_all(reign, state.partitions(existing))


async def tell_everything(reign: Reign, broker_ids: Collection[int]) -> None:
    """Tell brokers all that there is to know: who is alive and every partition, and then what they lead and follow."""
    tell_all_metadata(reign, broker_ids)
    for broker_id in broker_ids:
        await tell_leaderships(reign, broker_id)


def tell_all_metadata(reign: Reign, broker_ids: Collection[int]) -> None:
    """Tell brokers who is alive and every partition: first of all, for they judge by it what they hear later."""
    requests = reign.requests()
    requests.tell_all_metadata(broker_ids)
    reign.send(requests)


async def tell_leaderships(reign: Reign, broker_id: int) -> None:
    """Tell a broker of every partition that it has a replica of. Between portions the loop has its turn."""
    for _ in _tell_leaderships(reign, broker_id):
        await asyncio.sleep(0)


def tell_leaderships_now(reign: Reign, broker_id: int) -> None:
    """The same in this turn of the loop."""
    for _ in _tell_leaderships(reign, broker_id):
        pass


def _tell_leaderships(reign: Reign, broker_id: int) -> Iterator[None]:
    for number, portion in enumerate(chunks(list(reign.state.partitions_on(broker_id)), PARTITIONS_PER_PASS)):
        if number:
            yield
        requests = reign.requests()
        for partition in portion:
            if reign.state.state(partition) is not None and not _is_being_deleted(reign, partition):
                requests.tell_leadership(partition, [broker_id])
        reign.send(requests)
