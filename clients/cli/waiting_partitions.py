"""Partitions without a leader that wait for a replica which certainly has everything (KIP-966)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from oncelog.clients.admin.topic_pages import (
    LogEnd,
    PagedPartitionDescription,
    RecoveryDescription,
    describe_topic_pages,
)
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError, Refusal
from oncelog.protocol.messages.metadata import MetadataResponse

_RECOVERY_SETTING: Final = "unclean.recovery.strategy=longest_log"
_OLDER_SETTING: Final = "unclean.leader.election.enable=true"
"""Where the controller compares no log ends: at level 0 of the feature, of earlier releases, and of Kafka."""
_MOST_TOPICS: Final = 1000
_SHOWN: Final = 3
_FACT_WIDTH: Final = 13

Leaderless = Mapping[tuple[str, int], PagedPartitionDescription]
"""By topic and partition, what brokers say of partitions without a leader."""


class Waiting(NamedTuple):
    """A partition without a leader."""

    name: str
    brokers: tuple[int, ...]
    """Those that it waits for."""
    recovery: RecoveryDescription | None = None
    has_others: bool = True
    """Whether it has replicas on brokers that it does not wait for."""


async def describe_leaderless(cluster: Cluster, metadata: MetadataResponse) -> Leaderless:
    """Return the partitions of topics with partitions without a leader; empty if the broker does not say."""
    alive = {broker.node_id for broker in metadata.brokers}
    names = sorted(t.name for t in metadata.topics if t.name and any(p.leader_id not in alive for p in t.partitions))
    if not names:
        return {}
    try:
        described = await describe_topic_pages(cluster, names[:_MOST_TOPICS])
    except ClientError:
        return {}
    return {
        (topic.name, partition.partition): partition
        for topic in described.values()
        if not isinstance(topic, Refusal)
        for partition in topic.partitions
        if isinstance(partition, PagedPartitionDescription)
    }


def about_waiting(metadata: MetadataResponse, leaderless: Leaderless, alive: Collection[int]) -> list[str]:
    """Return a text, with advice, for each group of brokers that partitions without a leader wait for."""
    waiting: list[Waiting] = []
    for topic in sorted(metadata.topics, key=lambda topic: topic.name or ""):
        for partition in topic.partitions:
            if partition.leader_id in alive:
                continue
            name = f"{topic.name}-{partition.partition_index}"
            described = leaderless.get((topic.name or "", partition.partition_index))
            eligible = () if described is None else described.eligible_leaders
            recovery = None if described is None else described.recovery
            brokers = awaited_brokers((*partition.isr_nodes, *eligible), recovery, alive)
            others = set(partition.replica_nodes) - set(brokers)
            waiting.append(Waiting(name, brokers, recovery, bool(others)))
    return waiting_sentences(waiting)


def awaited_brokers(
    members: Iterable[int], recovery: RecoveryDescription | None, alive: Collection[int]
) -> tuple[int, ...]:
    """Return the brokers that a partition without a leader waits for: those that the controller names, if it does.

    ``members``: those in sync or eligible.
    """
    return tuple(sorted(set(members) - set(alive))) if recovery is None else recovery.waits_for


def waiting_sentences(partitions: Iterable[Waiting]) -> list[str]:
    """Return a text for each group of brokers that partitions wait for: a sentence, then a line for each fact."""
    groups: defaultdict[tuple[int, ...], list[Waiting]] = defaultdict(list)
    for partition in partitions:
        if partition.brokers:
            groups[partition.brokers].append(partition)
    return [_text(brokers, group) for brokers, group in sorted(groups.items())]


def _text(brokers: tuple[int, ...], group: list[Waiting]) -> str:
    more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
    wait = "1 partition waits" if len(group) == 1 else f"{len(group)} partitions wait"
    names = ", ".join(each.name for each in group[:_SHOWN])
    ids = " ".join(map(str, brokers))
    facts = [
        ("cause", "no replica that is up certainly has every acknowledged record"),
        ("until", _until(brokers, group)),
        *(("loss", about_loss(each.name, each.recovery)) for each in group[:_SHOWN] if each.recovery is not None),
        ("to wait", f"start {_brokers(brokers)} (of `oncelog cluster`: `oncelog cluster start {ids}`)"),
        *_ways_not_to_wait([each for each in group if each.has_others]),
    ]
    said = f"{wait} for {_brokers(brokers)}, which may alone have all acknowledged records ({names}{more})"
    return "\n".join([said, *(f"  {f'{name}:' if name else '':<{_FACT_WIDTH}}{fact}" for name, fact in facts)])


def _ways_not_to_wait(group: list[Waiting]) -> list[tuple[str, str]]:
    if not group:
        return [("not to wait", "there is no replica on another broker")]
    setting = _OLDER_SETTING if all(each.recovery is None for each in group) else _RECOVERY_SETTING
    change = f"oncelog topic alter-config {_topics(group)}"
    return [
        ("not to wait", f"{change} --set {setting}"),
        ("", "elects a replica that is up, and acknowledged records that it lacks are lost; afterwards"),
        ("", f"{change} --delete {setting.partition('=')[0]}"),
    ]


def _topics(group: list[Waiting]) -> str:
    topics = list(dict.fromkeys(each.name.rpartition("-")[0] for each in group))
    return " ".join(topics) if len(topics) <= _SHOWN else "TOPIC…"


def _until(brokers: tuple[int, ...], group: list[Waiting]) -> str:
    times = [each.recovery.decides_at_ms for each in group if each.recovery and each.recovery.decides_at_ms is not None]
    if not times:
        return f"{_brokers(brokers)} {'is' if len(brokers) == 1 else 'are'} back"
    return f"{_time(max(times))} at the latest: then the longest log that is known leads"


def about_loss(name: str, recovery: RecoveryDescription) -> str:
    """Return what would be lost if a partition waited no longer, and what is known of its logs."""
    if recovery.elects is None:
        return f"{name}: no replica is up that could lead"
    ends = recovery.log_ends
    known = ", ".join(
        f"broker {each} {end.offset} (leader epoch {end.leader_epoch})" for each, end in sorted(ends.items())
    )
    end = ends.get(recovery.elects)
    place = "that it lacks" if end is None else f"from offset {end.offset} on{_and_later_epochs(end)}"
    return (
        f"{name}: if broker {recovery.elects} leads without waiting, acknowledged records {place} are lost; "
        f"log end offsets: {known or 'none is known'}"
    )


def _and_later_epochs(elected: LogEnd) -> str:
    """Return the words for records that the elected log may have others in the place of: those of later leaders."""
    return f", and all of leader epochs above {elected.leader_epoch}," if elected.leader_epoch >= 0 else ""


def _brokers(brokers: tuple[int, ...]) -> str:
    return f"broker{'' if len(brokers) == 1 else 's'} {', '.join(map(str, brokers))}"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")[:-6] + "Z"
