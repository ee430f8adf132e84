"""Partitions of the internal topics that are led by a broker whose coordinator does not serve them.

There is no request that says so. The leader gets a request for a group, or a transactional id, of each of its
partitions. A coordinator that is still reading the partition, or cannot read it, reports that also for ids that do not
exist.
"""

from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Final

from oncelog.clients.cli.unreached_brokers import count_partitions
from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from oncelog.protocol.messages.metadata import MetadataResponse

_SECONDS: Final = 3.0
_SHOWN: Final = 3
_TRIES_PER_PARTITION: Final = 100
"""Ids that are tried to find one of each partition: it takes about 5 for 50 partitions."""
_UNSERVED: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})

UNSERVED_ADVICE: Final = (
    "that passes when the broker has read them; if it cannot, its log and the metric oncelog_background_task_failing "
    "say why, and it tries again at least once a minute"
)


async def unserved_coordinators(connection: Connection, broker_id: int, metadata: MetadataResponse) -> tuple[str, ...]:
    """Return the partitions that the broker on the connection leads and does not serve; none if it does not say."""
    groups = ids_by_partition(*_led(metadata, GROUP_METADATA_TOPIC_NAME, broker_id))
    transactional_ids = ids_by_partition(*_led(metadata, TRANSACTION_STATE_TOPIC_NAME, broker_id))
    unserved: list[tuple[str, int]] = []
    try:
        if groups:
            request = DescribeGroupsRequest(groups=list(groups))
            described = await connection.send(request, DescribeGroupsResponse, timeout=_SECONDS)
            unserved += [
                (GROUP_METADATA_TOPIC_NAME, groups[group.group_id])
                for group in described.groups
                if group.error_code in _UNSERVED
            ]
        if transactional_ids:
            states = await connection.send(
                DescribeTransactionsRequest(transactional_ids=list(transactional_ids)),
                DescribeTransactionsResponse,
                timeout=_SECONDS,
            )
            unserved += [
                (TRANSACTION_STATE_TOPIC_NAME, transactional_ids[state.transactional_id])
                for state in states.transaction_states
                if state.error_code in _UNSERVED
            ]
    except ClientError:
        return _named(unserved)
    return _named(unserved)


def _named(partitions: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    return tuple(f"{topic}-{index}" for topic, index in sorted(partitions))


def about_coordinators(partitions: Sequence[str]) -> str:
    """Return what unserved partitions mean for clients, what to do, and which they are: the first few of many."""
    count, (are, their) = len(partitions), ("is", "its") if len(partitions) == 1 else ("are", "their")
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return (
        f"{count_partitions(count)} {are} not served, so {their} groups and transactional ids wait; {UNSERVED_ADVICE} "
        f"({', '.join(partitions[:_SHOWN])}{more})"
    )


def ids_by_partition(partition_count: int, wanted: Iterable[int]) -> dict[str, int]:
    """Return ids with the partitions that hold them, one for each partition that is wanted."""
    missing, found = set(wanted), {}
    for number in islice(count(), _TRIES_PER_PARTITION * partition_count):
        if not missing:
            break
        name = f"oncelog-health-{number}"
        partition = partition_for(name, partition_count)
        if partition in missing:
            missing.remove(partition)
            found[name] = partition
    return found


def _led(metadata: MetadataResponse, topic: str, broker_id: int) -> tuple[int, list[int]]:
    """Return the number of partitions of a topic, and which of them the broker leads."""
    partitions = [partition for each in metadata.topics if each.name == topic for partition in each.partitions]
    return len(partitions), [each.partition_index for each in partitions if each.leader_id == broker_id]
