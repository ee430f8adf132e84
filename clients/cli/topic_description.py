"""What ``oncelog topic describe`` shows of a topic. Pure: a description in, rows and sentences out."""

from collections.abc import Collection, Mapping
from typing import Any

from oncelog.clients.admin.topic_pages import PagedPartitionDescription
from oncelog.clients.admin.topics import PartitionDescription, TopicDescription
from oncelog.clients.cli.waiting_partitions import WAITING_ADVICE, absent_members, waiting_sentences

LogEnds = Mapping[int, Mapping[str, int | None]]
"""By partition, its first and its next offset."""


def partition_rows(topic: TopicDescription, alive: Collection[int], ends: LogEnds) -> list[dict[str, Any]]:
    """Return a row for each partition.

    ``elr`` are its eligible leader replicas (KIP-966) and ``last_known_elr`` those known last; None where the broker
    names none because it does not know the request. ``waiting_for`` are the brokers that it waits for.
    """
    return [
        {
            "partition": partition.partition,
            "leader": partition.leader,
            "epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "elr": partition.eligible_leaders if isinstance(partition, PagedPartitionDescription) else None,
            "last_known_elr": (
                partition.last_known_eligible_leaders if isinstance(partition, PagedPartitionDescription) else None
            ),
            "offline": list(partition.offline),
            "waiting_for": _waits_for(partition, alive),
            **ends.get(partition.partition, {}),
        }
        for partition in topic.partitions
    ]


def columns(rows: Collection[Mapping[str, Any]], *, offsets: bool) -> list[str]:
    """Return the columns of the table; what was known last is shown where there is any."""
    shown = ["partition", "leader", "epoch", "replicas", "isr", "elr"]
    shown += ["last_known_elr"] if any(row["last_known_elr"] for row in rows) else []
    return shown + (["begin", "end"] if offsets else [])


def problems(topic: TopicDescription, alive: Collection[int]) -> list[str]:
    """Return a sentence, with advice, for each group of brokers that partitions of the topic wait for."""
    waiting = [(f"{topic.name}-{each.partition}", _waits_for(each, alive)) for each in topic.partitions]
    return [f"{sentence}; {WAITING_ADVICE}" for sentence in waiting_sentences(waiting)]


def _waits_for(partition: PartitionDescription, alive: Collection[int]) -> tuple[int, ...]:
    if partition.leader is not None:
        return ()
    eligible = partition.eligible_leaders if isinstance(partition, PagedPartitionDescription) else ()
    return absent_members((*partition.isr, *eligible), alive)
