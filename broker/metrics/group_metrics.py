"""Consumer groups that this broker coordinates (Kafka: GroupMetadataManager; kafka_exporter: kafka_consumergroup).

Each group has one coordinator, so each offset is shown once in a cluster. The lag counts to the high watermark of a
replica on this broker, or to the log end that the leader has reported (``partition_ends``); where neither is known,
there is no lag. A follower's high watermark is some milliseconds old.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from oncelog.broker.metrics.exposition import PAUSE
from oncelog.broker.metrics.family_parts import in_parts
from oncelog.broker.metrics.load_metrics import load_metrics
from oncelog.coordinator.group.coordinator import GroupCoordinator
from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.offset_counts import OffsetCounts
from oncelog.coordinator.group.state import GroupState
from oncelog.protocol.topic_partition import TopicPartition

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
_GROUPS_AT_ONCE: Final = 5_000
"""Counted in one turn of the loop."""

MOST_OFFSETS: Final = 100_000
"""Committed offsets that a page shows. A row takes 100 bytes, and each offset has two."""

EndOf: TypeAlias = Callable[[TopicPartition], int | None]
"""Returns the offset that a consumer without lag has reached; None if it is not known."""


class GroupOffset(NamedTuple):
    """What a group has committed for a partition."""

    group_id: str
    partition: TopicPartition
    offset: int


class GroupOffsets(NamedTuple):
    """The committed offsets that are shown, and how many are not, because there are too many."""

    shown: list[GroupOffset]
    omitted: int


async def committed_offsets(coordinator: GroupCoordinator) -> GroupOffsets:
    """Return the offsets, while other work runs. A group's are shown together or not at all."""
    shown: list[GroupOffset] = []
    omitted = seen = 0
    for shard in coordinator.open_shards():
        for group_id in shard.offsets.group_ids():
            committed = shard.offsets.committed(group_id)
            if len(shown) + len(committed) > MOST_OFFSETS:
                omitted += len(committed)
            else:
                shown += [GroupOffset(group_id, each, stored.committed.offset) for each, stored in committed.items()]
            seen += 1 + len(committed)
            if seen >= _GROUPS_AT_ONCE:
                seen = 0
                await asyncio.sleep(0)
    return GroupOffsets(shown, omitted)


def group_metrics(coordinator: GroupCoordinator) -> Iterator[Metric | None]:
    groups = [group for shard in coordinator.open_shards() for group in shard.groups.values()]
    states: Counter[GroupState] = Counter()
    for start in range(0, len(groups), _GROUPS_AT_ONCE):
        states.update([group.state for group in groups[start : start + _GROUPS_AT_ONCE]])
        yield PAUSE
    name = f"{_MANAGER}_numgroups"
    yield GaugeMetricFamily(name, "Groups that this broker coordinates.", value=len(groups))
    for state in GroupState:
        yield GaugeMetricFamily(f"{name}{state.value.lower()}", f"Groups in state {state.value}.", value=states[state])
    yield GaugeMetricFamily(
        f"{_MANAGER}_numoffsets",
        "Committed offsets of these groups, those of open transactions included.",
        value=sum(shard.offsets.count for shard in coordinator.open_shards()),
    )
    yield from _count_metrics(coordinator.offset_counts)
    yield from load_metrics("group", coordinator.load_times)
    yield from in_parts(_members_family, _add_members, groups)


def _count_metrics(counts: OffsetCounts) -> Iterator[Metric]:
    for name, doc, value in (
        ("commit", "Offsets committed to this broker since the start.", counts.committed),
        ("expiration", "Offsets removed because they were not used for offsets.retention.minutes.", counts.expired),
        ("deletion", "Offsets deleted by requests, those of deleted groups included.", counts.deleted),
    ):
        yield GaugeMetricFamily(f"kafka_server_group_coordinator_metrics_offset_{name}_count", doc, value=value)


def _members_family() -> Metric:
    return GaugeMetricFamily(
        "kafka_consumergroup_members", "Members of a group (kafka_exporter).", labels=("consumergroup",)
    )


def _add_members(family: Metric, group: Group) -> None:
    family.add_sample(family.name, {"consumergroup": group.group_id}, len(group.roster))


def group_offset_metrics(offsets: GroupOffsets, end_of: EndOf) -> Iterator[Metric]:
    def add_offset(family: Metric, row: GroupOffset) -> None:
        family.add_sample(family.name, _labels(row), row.offset)

    def add_lag(family: Metric, row: GroupOffset) -> None:
        end = end_of(row.partition)
        if end is not None:
            family.add_sample(family.name, _labels(row), max(0, end - row.offset))

    labels = ("consumergroup", "topic", "partition")
    for name, doc, add in (
        ("current_offset", "Committed offset of a group (kafka_exporter).", add_offset),
        ("lag", "Offsets from a group's committed offset to the end of the partition (kafka_exporter).", add_lag),
    ):
        yield from in_parts(
            partial(GaugeMetricFamily, f"kafka_consumergroup_{name}", doc, labels=labels), add, offsets.shown
        )
    yield GaugeMetricFamily(
        "oncelog_omitted_consumergroup_offsets",
        f"Committed offsets that this page does not show, as there are more than {MOST_OFFSETS:,}.",
        value=offsets.omitted,
    )


def _labels(row: GroupOffset) -> dict[str, str]:
    topic, index = row.partition
    return {"consumergroup": row.group_id, "topic": topic, "partition": str(index)}
