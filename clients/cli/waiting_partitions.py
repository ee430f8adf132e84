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
from oncelog.clients.cli.election_settings import (
    LONGEST_LOG,
    STRATEGY_KEY,
    UNCLEAN_KEY,
    ElectionSettings,
    SettingInForce,
)
from oncelog.clients.cli.topic_arguments import left_out, topic_arguments
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError, Refusal
from oncelog.protocol.messages.metadata import MetadataResponse

_RECOVERY_SETTING: Final = f"{STRATEGY_KEY}={LONGEST_LOG}"
_OLDER_SETTING: Final = f"{UNCLEAN_KEY}=true"
_NO_SETTINGS: Final = ElectionSettings()
"""Where the controller compares no log ends: at level 0 of the feature, of earlier releases, and of Kafka."""
_UNDECIDED: Final = (
    "the leader is not reached, and the controller waits for the end of its ZooKeeper session before it elects another"
)
_UNDECIDED_ALONE: Final = "its leader is not reached, and there is no replica on another broker"
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
    sufficient: tuple[int, ...] = ()
    """Those of the brokers that may lead as soon as they are back, if their logs are intact: of ISR and ELR."""
    registered: tuple[int, ...] = ()
    """Those of the brokers whose ZooKeeper session has not ended: they may have ended nevertheless."""
    is_undecided: bool = False
    """Whether the controller compares logs, and does not say yet what it waits for."""


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


def about_waiting(
    metadata: MetadataResponse,
    leaderless: Leaderless,
    alive: Collection[int],
    settings: ElectionSettings = _NO_SETTINGS,
) -> list[str]:
    """Return a text, with advice, for each group of brokers that partitions without a leader wait for."""
    waiting: list[Waiting] = []
    for topic in sorted(metadata.topics, key=lambda topic: topic.name or ""):
        for partition in topic.partitions:
            if partition.leader_id in alive:
                continue
            name = f"{topic.name}-{partition.partition_index}"
            described = leaderless.get((topic.name or "", partition.partition_index))
            if described is None:
                waiting.append(waiting_of(name, partition.isr_nodes, partition.replica_nodes, None, alive))
            else:
                members = (*described.isr, *described.eligible_leaders)
                waiting.append(waiting_of(name, members, partition.replica_nodes, described.recovery, alive))
    return waiting_sentences(waiting, settings)


def waiting_of(
    name: str,
    members: Iterable[int],
    replicas: Iterable[int],
    recovery: RecoveryDescription | None,
    alive: Collection[int],
) -> Waiting:
    """Return what a partition without a leader waits for. ``members``: those in sync or eligible."""
    members = set(members)
    brokers = awaited_brokers(members, recovery, alive)
    return Waiting(
        name,
        brokers,
        recovery,
        has_others=bool(set(replicas) - set(brokers)),
        sufficient=tuple(each for each in brokers if each in members),
        registered=tuple(each for each in brokers if each in alive),
    )


def awaited_brokers(
    members: Iterable[int], recovery: RecoveryDescription | None, alive: Collection[int]
) -> tuple[int, ...]:
    """Return the brokers that a partition without a leader waits for: those that the controller names, if it does.

    ``members``: those in sync or eligible.
    """
    return tuple(sorted(set(members) - set(alive))) if recovery is None else recovery.waits_for


def waiting_sentences(partitions: Iterable[Waiting], settings: ElectionSettings = _NO_SETTINGS) -> list[str]:
    """Return a text for each group of brokers that partitions wait for: a sentence, then a line for each fact.

    Those that are decided at a certain time are a group of their own: others wait without end.
    """
    groups: defaultdict[tuple[object, ...], list[Waiting]] = defaultdict(list)
    for each in partitions:
        if each.brokers:
            is_undecided = settings.compares_logs and each.recovery is None
            is_timed = each.recovery is not None and each.recovery.decides_at_ms is not None
            waits = each.brokers, each.sufficient, each.registered
            key = *waits, is_timed, is_undecided, is_undecided and each.has_others
            groups[key].append(each._replace(is_undecided=is_undecided))
    return [_text(group, settings) for _, group in sorted(groups.items())]


def _text(group: list[Waiting], settings: ElectionSettings) -> str:
    more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
    wait = "1 partition waits" if len(group) == 1 else f"{len(group)} partitions wait"
    group = sorted(group, key=_by_loss)
    names = ", ".join(each.name for each in group[:_SHOWN])
    first = group[0]
    facts = [
        ("cause", _cause(first)),
        ("until", _until(group)),
        *_losses(group),
        *_ways_to_wait(first),
        *([] if first.is_undecided else _ways_not_to_wait([each for each in group if each.has_others], settings)),
    ]
    awaited = _any_of(first.brokers) if first.sufficient == first.brokers else _brokers(first.brokers)
    said = f"{wait} for {awaited}, which may alone have all acknowledged records ({names}{more})"
    return "\n".join([said, *(f"  {f'{name}:' if name else '':<{_FACT_WIDTH}}{fact}" for name, fact in facts)])


def _cause(waiting: Waiting) -> str:
    if not waiting.is_undecided:
        return "no replica that is up certainly has every acknowledged record"
    return _UNDECIDED if waiting.has_others else _UNDECIDED_ALONE


def _by_loss(waiting: Waiting) -> tuple[bool, int, int]:
    """Return the key by which partitions are sorted: those first that would lose most; last those that are empty."""
    recovery = waiting.recovery
    if recovery is None:
        return False, 0, 0
    elected = None if recovery.elects is None else recovery.log_ends.get(recovery.elects)
    longest = max((end.offset for end in recovery.log_ends.values()), default=0)
    lost = 0 if elected is None else longest - elected.offset
    return _is_empty(recovery), -lost, -longest


def _losses(group: list[Waiting]) -> list[tuple[str, str]]:
    """Return what would be lost of the first partitions, and how many of all have nothing to lose."""
    known = [(each.name, each.recovery) for each in group if each.recovery is not None]
    empty = [name for name, recovery in known if _is_empty(recovery)]
    losing = [(name, recovery) for name, recovery in known if name not in empty]
    facts = [_about_loss(name, recovery) for name, recovery in losing[:_SHOWN]]
    if len(losing) > _SHOWN:
        facts.append(f"and {len(losing) - _SHOWN} more, which `oncelog topic describe TOPIC --format json` shows")
    if len(empty) == 1:
        facts.append(f"{empty[0]}: nothing: all logs are empty")
    elif empty:
        facts.append(f"nothing of {len(empty)} partitions: all their logs are empty")
    return [("" if index else "loss", fact) for index, fact in enumerate(facts)]


def _is_empty(recovery: RecoveryDescription) -> bool:
    """Return whether all logs that may have records are known, and have none."""
    ends = recovery.log_ends
    if recovery.elects is None:
        return False
    return bool(ends) and not any(end.offset for end in ends.values()) and set(recovery.waits_for) <= ends.keys()


def _ways_to_wait(waiting: Waiting) -> list[tuple[str, str]]:
    facts = []
    ended = tuple(each for each in waiting.brokers if each not in waiting.registered)
    if ended:
        ids = " ".join(map(str, ended))
        intact = "" if waiting.recovery is None else " if its log is intact"
        one = f"; one is enough{intact}" if len(set(ended) & set(waiting.sufficient)) > 1 else ""
        facts.append(("to wait", f"start {_brokers(ended)} (of `oncelog cluster`: `oncelog cluster start {ids}`){one}"))
    if waiting.registered:
        has, it = ("has", "it") if len(waiting.registered) == 1 else ("have", "them")
        text = f"{_brokers(waiting.registered)} {has} a ZooKeeper session, and the controller does not know the log end"
        facts.append(("" if facts else "to wait", f"{text}: start {it} if ended, or wait if just started"))
    return facts


def _ways_not_to_wait(group: list[Waiting], settings: ElectionSettings) -> list[tuple[str, str]]:
    if not group:
        return [("not to wait", "there is no replica on another broker")]
    electing = [each for each in group if each.recovery is None or each.recovery.elects is not None]
    if not electing:
        return [("not to wait", "no replica is up that could lead: start its broker first")]
    waiting = [each for each in electing if each.recovery is None or each.recovery.strategy != LONGEST_LOG]
    if not waiting:
        return _undo_afterwards(_topics(electing), settings)
    setting = _OLDER_SETTING if all(each.recovery is None for each in waiting) else _RECOVERY_SETTING
    topics = _topics(waiting)
    change, more = f"oncelog topic alter-config {topic_arguments(topics)}", left_out(topics)
    return [
        ("not to wait", f"{change} --set {setting}"),
        *([("", more)] if more else []),
        ("", "elects a replica that is up, and acknowledged records that it lacks are lost; afterwards"),
        ("", f"{change} --delete {setting.partition('=')[0]}"),
    ]


def _undo_afterwards(topics: list[str], settings: ElectionSettings) -> list[tuple[str, str]]:
    """Return which settings are in force that make the longest log lead soon, and how to undo each of them."""
    groups: defaultdict[SettingInForce, list[str]] = defaultdict(list)
    for topic in topics:
        if topic in settings.in_force:
            groups[settings.in_force[topic]].append(topic)
    if not groups:
        keys = f"--key {STRATEGY_KEY} --key {UNCLEAN_KEY}"
        return [
            ("not to wait", "a setting holds already by which the longest log that is known leads soon;"),
            ("", f"which one it is: oncelog config describe topic {topics[0]} {keys}"),
        ]
    facts: list[tuple[str, str]] = []
    for setting, names in groups.items():
        holds = f"{setting.key}={setting.value} {setting.place} holds already"
        facts.append(("" if facts else "not to wait", f"{holds}: the longest log that is known leads soon; afterwards"))
        facts.append(("", setting.undo(names)))
    return facts


def _topics(group: list[Waiting]) -> list[str]:
    return list(dict.fromkeys(each.name.rpartition("-")[0] for each in group))


def _until(group: list[Waiting]) -> str:
    times = [each.recovery.decides_at_ms for each in group if each.recovery and each.recovery.decides_at_ms is not None]
    if times:
        return f"{_time(max(times))} at the latest: then the longest log that is known leads"
    brokers, sufficient = group[0].brokers, group[0].sufficient
    if group[0].is_undecided:
        return f"{_any_of(sufficient or brokers)} is back; if its session ends before, look here again"
    if len(brokers) == 1:
        return f"{_brokers(brokers)} is back"
    if group[0].recovery is None and sufficient:
        return f"{_any_of(sufficient)} is back"
    one = f"{_any_of(sufficient)} is back with an intact log, or " if sufficient else ""
    return f"{one}{_brokers(brokers)} are back"


def _about_loss(name: str, recovery: RecoveryDescription) -> str:
    """Return what would be lost if a partition waited no longer, and what is known of its logs."""
    if recovery.elects is None:
        return f"{name}: no replica is up that could lead"
    ends = recovery.log_ends
    known = ", ".join(f"broker {each}: {_about_end(end)}" for each, end in sorted(ends.items()))
    end = ends.get(recovery.elects)
    if end is None:
        lost = "acknowledged records that it lacks are lost"
    elif not end.offset:
        lost = "all acknowledged records are lost, if there are any: its log is empty"
    else:
        lost = f"acknowledged records from offset {end.offset} on{_and_earlier(end)} are lost, if there are any"
    return (
        f"{name}: if broker {recovery.elects} leads without waiting, {lost}; "
        f"log end offsets: {known or 'none is known'}"
    )


def _and_earlier(elected: LogEnd) -> str:
    """Return the words for records that the elected log may have others in the place of: those of later leaders."""
    return f", and earlier ones of leader epochs above {elected.leader_epoch}," if elected.leader_epoch >= 0 else ""


def _about_end(end: LogEnd) -> str:
    return f"{end.offset} (leader epoch {end.leader_epoch})" if end.leader_epoch >= 0 else f"{end.offset}"


def _any_of(brokers: tuple[int, ...]) -> str:
    return f"broker {' or '.join(map(str, brokers))}"


def _brokers(brokers: tuple[int, ...]) -> str:
    return f"broker{'' if len(brokers) == 1 else 's'} {', '.join(map(str, brokers))}"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")[:-6] + "Z"
