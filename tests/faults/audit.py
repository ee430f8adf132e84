"""What the cluster itself shows when the load is over: nothing open, nothing behind, the same bytes everywhere."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.offsets import LATEST, FoundOffset
from oncelog.clients.errors import ClientError
from oncelog.clients.partition_results import PartitionResults
from oncelog.protocol.topic_partition import TopicPartition
from tests.faults.checker import Violation
from tests.faults.log_audit import look_at_log
from tests.faults.replicas import below, difference, log_directories, read_log
from tests.faults.roles import Roles

_SETTLE_SECONDS: Final = 40.0
"""Within which what was cut off catches up, and what is being ended has ended."""
_LOOK_SECONDS: Final = 0.2
_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


async def audit(places: Mapping[int, Path], roles: Roles) -> list[Violation]:
    """All that is wrong when it had time to settle; ``places``: the brokers' data directories."""
    looks: list[Callable[[], Awaitable[list[Violation]]]] = [
        lambda: _look_at_isrs(roles),
        lambda: _look_at_transactions(roles),
        lambda: _look_at_logs(roles),
        lambda: _look_at_replicas(places, roles),
    ]
    found: list[Violation] = []
    for look in looks:
        found += await _settled(look)
    return found


async def _settled(look: Callable[[], Awaitable[list[Violation]]]) -> list[Violation]:
    """What is still wrong after a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SETTLE_SECONDS
    while True:
        try:
            found = await look()
        except ClientError as error:
            found = [Violation("unreachable", repr(error))]
        if not found or loop.time() > deadline:
            return found
        await asyncio.sleep(_LOOK_SECONDS)


async def _look_at_isrs(roles: Roles) -> list[Violation]:
    return [Violation("isr", f"{partition} lacks replicas in sync") for partition in await roles.out_of_sync()]


async def _look_at_transactions(roles: Roles) -> list[Violation]:
    async with roles.admin() as admin:
        listed = await admin.list_transactions()
    return [
        Violation("hanging", f"{each.transactional_id} is {each.state}") for each in listed if each.state not in _ENDED
    ]


async def _partitions(admin: Admin) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, each.partition) for topic in await admin.list_topics() for each in topic.partitions
    ]


async def _look_at_logs(roles: Roles) -> list[Violation]:
    """No producer has an open transaction, and readers of committed records get to the end."""
    async with roles.admin() as admin:
        partitions = await _partitions(admin)
        producers = await admin.describe_producers(partitions)
        ends = _offsets(await admin.list_offsets(dict.fromkeys(partitions, LATEST)))
        stable = _offsets(await admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True))
    found = [
        Violation("hanging", f"{partition}: producer {each.producer_id} since {each.transaction_start_offset}")
        for partition, active in producers.found.items()
        for each in active
        if each.transaction_start_offset is not None
    ]
    found += [Violation("unreachable", f"{partition}: {error}") for partition, error in producers.failed.items()]
    found += [
        Violation("hanging", f"{partition}: last stable offset {stable.get(partition)}, high watermark {end}")
        for partition, end in ends.items()
        if stable.get(partition) != end
    ]
    return found


def _offsets(responses: PartitionResults[FoundOffset]) -> dict[TopicPartition, int | None]:
    return {
        **{partition: found.offset for partition, found in responses.found.items()},
        **dict.fromkeys(responses.failed, None),
    }


async def _look_at_replicas(places: Mapping[int, Path], roles: Roles) -> list[Violation]:
    async with roles.admin() as admin:
        ends = _offsets(await admin.list_offsets(dict.fromkeys(await _partitions(admin), LATEST)))
    return await asyncio.to_thread(_compare, places, ends)


def _compare(places: Mapping[int, Path], ends: Mapping[TopicPartition, int | None]) -> list[Violation]:
    directories = {broker_id: log_directories(place) for broker_id, place in places.items()}
    found = []
    for partition, end in ends.items():
        name = f"{partition.topic}-{partition.partition}"
        missing = [broker_id for broker_id, logs_of in directories.items() if name not in logs_of]
        if missing or end is None:
            found.append(Violation("replicas", f"{name}: no log at brokers {missing}, or no high watermark ({end})"))
            continue
        logs = {broker_id: read_log(logs_of[name]) for broker_id, logs_of in directories.items()}
        differs = difference(logs, end)
        if differs is not None:
            found.append(Violation("replicas", f"{name} below {end}: {differs}"))
        elif not partition.topic.startswith("__"):  # Coordinators write without producers, and markers of their own.
            found += [Violation("log", f"{name}: {what}") for what in look_at_log(below(logs[min(logs)], end))]
    return found


def describe(violations: Sequence[Violation]) -> list[str]:
    """A line for each, the first of many."""
    shown = [f"{violation.kind}: {violation.text}" for violation in violations[:20]]
    return shown if len(violations) <= 20 else [*shown, f"… and {len(violations) - 20} more"]
