"""The health of a cluster, judged from its metadata and visits to its brokers. Pure.

A cluster is healthy if there is nothing to say about it: every sentence is a reason for ``healthy`` to be no, and for
an exit code of 1.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oncelog.clients.cli.absent_brokers import about_absent, absent_brokers, name_brokers
from oncelog.clients.cli.directories import DIRECTORY_ADVICE, OPEN_FILES_ADVICE, about_directory, about_open_files
from oncelog.clients.cli.election_settings import ElectionSettings
from oncelog.clients.cli.in_sync_minimum import about_minimum
from oncelog.clients.cli.metadata_store import STORE_ADVICE, WITHOUT_STORE
from oncelog.clients.cli.unreached_brokers import DOCTOR_SETS, count_partitions, unreached_advice
from oncelog.clients.cli.unserved_coordinators import about_coordinators
from oncelog.clients.cli.waiting_partitions import Leaderless, about_waiting
from oncelog.clients.connection import Address
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.metadata import MetadataResponse

SHOWN_PARTITIONS: Final = 20
PARTITION_COLUMNS: Final = ("partition", "state", "leader", "in_sync", "not_in_sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBroker:
    """One broker of the cluster, as this machine sees it."""

    broker_id: int
    address: Address
    rack: str | None
    failure: str | None
    """Why it is not reached at the address that it advertises; None if it is."""
    is_silent: bool = False
    """Whether that address accepts connections: then its process is there, and does not respond."""
    reaches_store: bool | None
    """Whether it reaches its metadata store; None if that is not known."""
    failed_directories: tuple[str, ...] = ()
    """Directories that accept no writes."""
    refusing_logs: int = 0
    """Logs that accept none because the broker can open no more files."""
    unserved_coordinators: tuple[str, ...] = ()
    """The partitions of internal topics that it leads and does not serve."""
    uncreatable_topics: tuple[str, ...] = ()
    """A sentence for each internal topic that it cannot create with its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """The health of a cluster, ready to be shown."""

    summary: dict[str, Any]
    brokers: list[dict[str, Any]]
    partitions: list[dict[str, Any]]
    """Those without a leader, or without all of their replicas in sync."""
    problems: list[str]
    of_visits: frozenset[str] = frozenset()
    """Those of the problems that ``oncelog doctor`` finds by its own visits, and says what to set about."""

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    @property
    def beyond_visits(self) -> list[str]:
        """The problems that visits to the brokers alone do not show."""
        return [problem for problem in self.problems if problem not in self.of_visits]


def assess(
    metadata: MetadataResponse,
    controller_id: int | None,
    brokers: Sequence[SeenBroker],
    minimums: Mapping[str, int] | None = None,
    leaderless: Leaderless | None = None,
    about_settings: Sequence[str] = (),
    elections: ElectionSettings | None = None,
) -> ClusterHealth:
    """Judge a cluster by its metadata and by visits to its brokers.

    ``minimums`` is ``min.insync.replicas`` by topic, as far as it is known; ``leaderless`` says more of partitions
    without a leader; ``about_settings`` are sentences about settings of topics with replicas out of sync;
    ``elections``: how the controller elects a replica that may lack records.
    """
    alive = {broker.broker_id for broker in brokers}
    partitions = _ailing(metadata, alive, leaderless or {})
    offline = sum(row["state"] == "offline" for row in partitions)
    lacking = [row for row in partitions if row["not_in_sync"]]
    controller, unreached = _about_controller(controller_id), _about_unreached(metadata, brokers)
    storage = _about_storage(brokers)
    problems = [*controller, *_about_silent_controller(controller_id, brokers)]
    problems += [*about_absent(metadata, alive), *_about_partitions(offline, lacking, brokers)]
    problems += about_waiting(metadata, leaderless or {}, alive, elections or ElectionSettings())
    refusing = about_minimum(metadata, minimums or {}, alive)
    problems += [refusing] if refusing is not None else []
    problems += about_settings
    problems += [*unreached, *_about_coordination(brokers), *storage]
    summary = {
        "healthy": not problems,
        "cluster_id": metadata.cluster_id,
        "controller": controller_id,
        "topics": len(metadata.topics),
        "partitions": sum(len(topic.partitions) for topic in metadata.topics),
        "offline": offline,
        "under_replicated": len(lacking),
    }
    return ClusterHealth(
        summary=summary,
        brokers=_broker_rows(brokers, absent_brokers(metadata, alive)),
        partitions=partitions,
        problems=problems,
        of_visits=frozenset((*controller, *unreached, *storage)),
    )


def _broker_rows(brokers: Sequence[SeenBroker], absent: Iterable[int]) -> list[dict[str, Any]]:
    """Return a row for each broker, also for those that have replicas and are not in the cluster."""
    rows = [
        {
            "broker": broker.broker_id,
            "address": str(broker.address),
            "rack": broker.rack,
            "in_cluster": True,
            "reached": broker.failure is None,
            "store": broker.reaches_store,
            "failed_directories": list(broker.failed_directories),
            "refusing_logs": broker.refusing_logs,
            "unserved_coordinators": list(broker.unserved_coordinators),
        }
        for broker in brokers
    ]
    unknown: dict[str, Any] = {
        "address": None,
        "rack": None,
        "in_cluster": False,
        "reached": False,
        "store": None,
        "failed_directories": [],
        "refusing_logs": 0,
        "unserved_coordinators": [],
    }
    rows += [{"broker": broker_id, **unknown} for broker_id in absent]
    return sorted(rows, key=lambda row: row["broker"])


def _ailing(metadata: MetadataResponse, alive: set[int], leaderless: Leaderless) -> list[dict[str, Any]]:
    """Return a row for each, those of users' topics first among those of the same state.

    While a partition waits for a replica, none is in sync, although Metadata names some.
    """
    rows = []
    for topic in sorted(metadata.topics, key=lambda topic: (topic.name in INTERNAL_TOPICS, topic.name or "")):
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            described = leaderless.get((topic.name or "", partition.partition_index))
            in_sync = partition.isr_nodes if described is None else described.isr
            missing = sorted(set(partition.replica_nodes) - set(in_sync))
            is_offline = partition.leader_id not in alive
            if is_offline or missing:
                rows.append(
                    {
                        "partition": f"{topic.name}-{partition.partition_index}",
                        "state": "offline" if is_offline else "under-replicated",
                        "leader": None if is_offline else partition.leader_id,
                        "in_sync": list(in_sync),
                        "not_in_sync": missing,
                    }
                )
    return sorted(rows, key=lambda row: row["state"])


def table_rows(partitions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of ailing partitions, with one row for internal ones of the same leader and in-sync replicas.

    The order of the replicas does not matter then. Their number is in place of the partition's.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in partitions:
        topic = row["partition"].rpartition("-")[0]
        is_internal = topic in INTERNAL_TOPICS
        replicas = (tuple(sorted(row["in_sync"])), tuple(row["not_in_sync"]))
        key = (topic, row["state"], row["leader"], *replicas) if is_internal else (row["partition"],)
        groups.setdefault(key, []).append(row)
    return [
        group[0]
        if len(group) == 1
        else {**group[0], "partition": f"{key[0]} ({len(group)} partitions)", "in_sync": sorted(group[0]["in_sync"])}
        for key, group in groups.items()
    ]


def _about_controller(controller_id: int | None) -> list[str]:
    if controller_id is None:
        return ["no controller is known: no leader can be elected, and no topic created"]
    return []


def _about_silent_controller(controller_id: int | None, brokers: Sequence[SeenBroker]) -> list[str]:
    is_silent = any(broker.broker_id == controller_id and broker.failure is not None for broker in brokers)
    if is_silent and len(brokers) > 1:
        return [
            f"the controller, broker {controller_id}, is not reached: if it does not run, no leader is elected and no "
            "topic created until its ZooKeeper session ends and another broker takes over"
        ]
    return []


def _about_partitions(offline: int, lacking: Sequence[Mapping[str, Any]], brokers: Sequence[SeenBroker]) -> list[str]:
    problems = []
    if offline:
        problems.append(f"{count_partitions(offline)} without a leader: nothing is written to them or read")
    if lacking:
        remedy = _remedy_of_lacking(lacking, brokers)
        problems.append(f"{count_partitions(len(lacking))} without all replicas in sync: {remedy}")
    return problems


def _remedy_of_lacking(lacking: Sequence[Mapping[str, Any]], brokers: Sequence[SeenBroker]) -> str:
    """Return what gets the replicas in sync. One whose partition has no leader has nothing to follow before that."""
    alive = {broker.broker_id for broker in brokers}
    absent = {node for row in lacking for node in row["not_in_sync"]} - alive
    present = {node for row in lacking if row["leader"] is not None for node in row["not_in_sync"]} & alive
    remedies = [f"start {name_brokers(absent)}"] if absent else []
    if present:
        runs = all(broker.failure is None for broker in brokers if broker.broker_id in present)
        reach, their = ("reaches", "its") if len(present) == 1 else ("reach", "their")
        if not runs:
            reach = f"{'runs' if len(present) == 1 else 'run'} and {reach}"
        remedies.append(f"check that {name_brokers(present)} {reach} the leaders, then {their} replicas catch up")
    return ", and ".join(remedies) or "they follow a leader as soon as there is one"


def _about_unreached(metadata: MetadataResponse, brokers: Sequence[SeenBroker]) -> list[str]:
    led = Counter(partition.leader_id for topic in metadata.topics for partition in topic.partitions)
    problems = []
    for broker in brokers:
        if broker.failure is None:
            continue
        said = f"broker {broker.broker_id} is not reached at {broker.address}, which it advertises: {broker.failure}"
        if len(brokers) > 1:
            problems.append(
                f"{said}; {unreached_advice(led[broker.broker_id], broker.broker_id if broker.is_silent else None)}"
            )
        else:
            problems.append(f"{said}; {DOCTOR_SETS}")
    return problems


def _about_coordination(brokers: Sequence[SeenBroker]) -> list[str]:
    problems = [
        f"broker {broker.broker_id}: {about_coordinators(broker.unserved_coordinators)}"
        for broker in brokers
        if broker.unserved_coordinators
    ]
    problems += dict.fromkeys(sentence for broker in brokers for sentence in broker.uncreatable_topics)
    return problems


def _about_storage(brokers: Sequence[SeenBroker]) -> list[str]:
    """Return what is wrong with the directories of brokers, and with their metadata store."""
    problems = [
        f"broker {broker.broker_id}: {about_directory(path)}; {DIRECTORY_ADVICE}"
        for broker in brokers
        for path in broker.failed_directories
    ]
    problems += [
        f"broker {broker.broker_id}: {about_open_files(broker.refusing_logs)}; {OPEN_FILES_ADVICE}"
        for broker in brokers
        if broker.refusing_logs
    ]
    cut_off = [str(broker.broker_id) for broker in brokers if broker.reaches_store is False]
    if cut_off:
        which = f"broker {cut_off[0]}" if len(cut_off) == 1 else f"each of brokers {', '.join(cut_off)}"
        problems.append(f"{which}: {WITHOUT_STORE}; {STORE_ADVICE}")
    return problems
