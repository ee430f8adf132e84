"""Partitions without a leader that wait for a replica which certainly has everything (KIP-966)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from oncelog.clients.admin.topic_pages import PagedPartitionDescription, describe_topic_pages
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError, Refusal
from oncelog.protocol.messages.metadata import MetadataResponse

WAITING_ADVICE: Final = (
    "start them; without them, unclean.leader.election.enable=true for the topic elects a replica that is there, and "
    "acknowledged records that it lacks are lost"
)
_MOST_TOPICS: Final = 1000
_SHOWN: Final = 3

EligibleReplicas = Mapping[tuple[str, int], Collection[int]]
"""By topic and partition, the replicas that may lead although they are not in sync."""


async def eligible_replicas(cluster: Cluster, metadata: MetadataResponse) -> EligibleReplicas:
    """Return the eligible replicas of partitions without a leader; empty if the broker does not say."""
    alive = {broker.node_id for broker in metadata.brokers}
    names = sorted(t.name for t in metadata.topics if t.name and any(p.leader_id not in alive for p in t.partitions))
    if not names:
        return {}
    try:
        described = await describe_topic_pages(cluster, names[:_MOST_TOPICS])
    except ClientError:
        return {}
    return {
        (topic.name, partition.partition): partition.eligible_leaders
        for topic in described.values()
        if not isinstance(topic, Refusal)
        for partition in topic.partitions
        if isinstance(partition, PagedPartitionDescription)
    }


def about_waiting(metadata: MetadataResponse, eligible: EligibleReplicas, alive: Collection[int]) -> list[str]:
    """Return a sentence for each group of brokers that partitions without a leader wait for."""
    waiting: list[tuple[str, tuple[int, ...]]] = []
    for topic in sorted(metadata.topics, key=lambda topic: topic.name or ""):
        for partition in topic.partitions:
            members = (*partition.isr_nodes, *eligible.get((topic.name or "", partition.partition_index), ()))
            name = f"{topic.name}-{partition.partition_index}"
            waiting.append((name, () if partition.leader_id in alive else absent_members(members, alive)))
    return waiting_sentences(waiting)


def absent_members(members: Iterable[int], alive: Collection[int]) -> tuple[int, ...]:
    """Return the brokers that a partition without a leader waits for; ``members``: those in sync or eligible."""
    return tuple(sorted(set(members) - set(alive)))


def waiting_sentences(partitions: Iterable[tuple[str, tuple[int, ...]]]) -> list[str]:
    """Return a sentence for each group of brokers, from partitions and the brokers that each waits for."""
    waiting: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, brokers in partitions:
        if brokers:
            waiting[brokers].append(name)
    return [_sentence(brokers, names) for brokers, names in sorted(waiting.items())]


def _sentence(brokers: tuple[int, ...], names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    wait = "1 partition waits" if len(names) == 1 else f"{len(names)} partitions wait"
    listed = f"broker{'' if len(brokers) == 1 else 's'} {', '.join(map(str, brokers))}"
    return f"{wait} for {listed}, which may alone have all acknowledged records ({', '.join(names[:_SHOWN])}{more})"
