"""What ``oncelog topic describe`` shows of a topic. Pure: a description in, rows and sentences out."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from oncelog.clients.admin.topic_pages import PagedPartitionDescription, RecoveryDescription
from oncelog.clients.admin.topics import PartitionDescription, TopicDescription
from oncelog.clients.cli.election_settings import ElectionSettings
from oncelog.clients.cli.unreached_brokers import unreached_advice
from oncelog.clients.cli.waiting_partitions import Waiting, awaited_brokers, waiting_of, waiting_sentences
from oncelog.clients.errors import BrokerSilent, ClientError

LogEnds = Mapping[int, Mapping[str, int | None]]
"""By partition, its first and its next offset."""


def partition_rows(topic: TopicDescription, alive: Collection[int], ends: LogEnds) -> list[dict[str, Any]]:
    """Return a row for each partition.

    ``elr`` are its eligible leader replicas (KIP-966) and ``last_known_elr`` those that are eligible no more; None
    where the broker names none because it does not know the request. ``waiting_for`` are the brokers that it waits for,
    and ``recovery`` is what else is known while it has no leader.
    """
    return [
        {
            "partition": partition.partition,
            "leader": partition.leader,
            "epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": partition.isr,
            "elr": partition.eligible_leaders if isinstance(partition, PagedPartitionDescription) else None,
            "last_known_elr": _formerly_eligible(partition),
            "offline": list(partition.offline),
            "waiting_for": _waits_for(partition, alive),
            "recovery": _recovery_row(partition),
            **ends.get(partition.partition, {}),
        }
        for partition in topic.partitions
    ]


def columns(rows: Collection[Mapping[str, Any]], *, offsets: bool) -> list[str]:
    """Return the columns of the table; what was known last is shown where there is any."""
    shown = ["partition", "leader", "epoch", "replicas", "isr", "elr"]
    shown += ["last_known_elr"] if any(row["last_known_elr"] for row in rows) else []
    return shown + (["begin", "end"] if offsets else [])


def problems(topic: TopicDescription, alive: Collection[int], elections: ElectionSettings | None = None) -> list[str]:
    """Return a text, with advice, for each group of brokers that partitions of the topic wait for."""
    return waiting_sentences(
        (_waiting(topic.name, each, alive) for each in topic.partitions), elections or ElectionSettings()
    )


def about_unreached(topic: TopicDescription, unreached: Mapping[int, ClientError]) -> list[str]:
    """Return a sentence, with advice, for each leader that is not reached; ``unreached`` has the reasons."""
    led = Counter(partition.leader for partition in topic.partitions)
    return [
        f"broker {broker_id} is not reached: {reason}; "
        f"{unreached_advice(led[broker_id], broker_id if isinstance(reason, BrokerSilent) else None)}"
        for broker_id, reason in sorted(unreached.items())
    ]


def _waiting(topic: str, partition: PartitionDescription, alive: Collection[int]) -> Waiting:
    name, recovery = f"{topic}-{partition.partition}", recovery_of(partition)
    if partition.leader is not None:
        return Waiting(name, (), recovery)
    return waiting_of(name, _members(partition), partition.replicas, recovery, alive)


def _waits_for(partition: PartitionDescription, alive: Collection[int]) -> tuple[int, ...]:
    if partition.leader is not None:
        return ()
    return awaited_brokers(_members(partition), recovery_of(partition), alive)


def _members(partition: PartitionDescription) -> tuple[int, ...]:
    """Return those in sync or eligible."""
    eligible = partition.eligible_leaders if isinstance(partition, PagedPartitionDescription) else ()
    return (*partition.isr, *eligible)


def _formerly_eligible(partition: PartitionDescription) -> tuple[int, ...] | None:
    """Return the last known ELR. Brokers name the last leader in it as well, which may be eligible."""
    if not isinstance(partition, PagedPartitionDescription):
        return None
    eligible = (*partition.isr, *partition.eligible_leaders)
    return tuple(each for each in partition.last_known_eligible_leaders if each not in eligible)


def recovery_of(partition: PartitionDescription) -> RecoveryDescription | None:
    return partition.recovery if isinstance(partition, PagedPartitionDescription) else None


def _recovery_row(partition: PartitionDescription) -> dict[str, Any] | None:
    recovery = recovery_of(partition)
    if recovery is None:
        return None
    return {
        "strategy": recovery.strategy,
        "elects": recovery.elects,
        "decides_at_ms": recovery.decides_at_ms,
        "log_ends": {
            broker: {"leader_epoch": end.leader_epoch, "offset": end.offset}
            for broker, end in recovery.log_ends.items()
        },
    }
