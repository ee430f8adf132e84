"""Whatever prefix of the log a new coordinator finds, it knows what the old one knew when the log ended there."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.group.memory import GroupMemory
from oncelog.coordinator.group.offset_counts import OffsetCounts
from oncelog.coordinator.group.offset_requests import Committer, OffsetToCommit
from oncelog.coordinator.group.offsets import size_of_metadata
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.shard import GroupShard, Producer
from oncelog.coordinator.group.state import GroupState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import read_header
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.group.group_world import TOPIC_ID, GroupWorld, group_world
from tests.unit.coordinator.transaction.world import Log

SETTINGS = GroupSettings(
    group_initial_rebalance_delay_ms=0, offsets_retention_ms=50_000, offsets_retention_check_interval_ms=20_000
)
EVENTS = ("commit", "txn", "txn", "commit marker", "abort marker", "member", "static", "leave", "delete offsets")
EVENTS += ("delete groups", "delete topic", "pass time", "refuse", "short retention")


def knowledge(shard: GroupShard) -> dict[str, Any]:
    """All that is not soft state: images of groups, offsets with their places in the log, and what is pending."""
    groups = {group_id: group.persisted for group_id, group in shard.groups.items()}
    with_offsets = set(shard.offsets.group_ids())
    kept = [shard.offsets.committed(g) for g in with_offsets]
    kept += [offsets for p in (7, 8) for offsets in shard.offsets.pending_of(p).values()]
    weighed = [size_of_metadata(stored.committed.metadata) for offsets in kept for stored in offsets.values()]
    assert shard.offsets.metadata_bytes == sum(weighed)
    assert shard.offsets.count == len(weighed)
    return {
        "groups": {g: image for g, image in groups.items() if image is not None or g in with_offsets},
        "offsets": {g: dict(shard.offsets.committed(g)) for g in with_offsets},
        "pending": {p: {g: dict(o) for g, o in shard.offsets.pending_of(p).items()} for p in (7, 8)},
        "unstable": {g: bool(shard.offsets.unstable(g)) for g in with_offsets},
    }


def replayed(batches: list[bytes]) -> GroupShard:
    log = Log()
    shard = GroupShard(0, log.elect(), SETTINGS, lambda: 0, GroupMemory(SETTINGS.memory_limits()), OffsetCounts())
    for batch in batches:
        shard.replay(batch, 0, read_header(batch))
    for group_id in shard.offsets.group_ids():
        shard.group_or_new(group_id)
    return shard


def happen(w: GroupWorld, event: str, rng: random.Random) -> None:
    group = rng.choice("gh")
    partition = TopicPartition(rng.choice("tu"), rng.randrange(2))
    producer = Producer(rng.choice((7, 8)), 0)
    offset = OffsetToCommit(
        partition, rng.randrange(100), rng.choice((-1, 2, 5)), "m", rng.choice((TOPIC_ID, bytes(16)))
    )
    match event:
        case "commit":
            w.commit_all([offset, offset._replace(partition=TopicPartition("v", 0))], committer=Committer(group))
        case "short retention":
            w.begin(lambda reply: w.coordinator.commit_offsets(Committer(group), [offset], reply, retention_ms=1_000))
        case "txn":
            committer = Committer(group)
            w.txn_commit(offset.offset, committer=committer, producer=producer, partition=partition, metadata="m")
        case "commit marker" | "abort marker":
            w.marker(producer.id, commit=event == "commit marker")
        case "member" | "static":
            instance = rng.choice("ab") if event == "static" else None
            join = w.join(group=group, instance=instance)
            if not join.is_waiting and join.response.error is ErrorCode.NONE:
                response = join.response
                assignments = {member.member_id: bytes([rng.randrange(256)]) for member in response.members}
                w.sync(response.member_id, assignments, group=group, generation=response.generation, instance=instance)
        case "leave":
            known = w.shard.groups.get(group)
            if known is not None:
                w.leave(*known.roster.ids()[:2], group=group)
        case "delete offsets":
            w.delete_offsets(partition, group=group)
        case "delete groups":
            w.delete_groups("g", "h")
        case "delete topic":
            w.delete_topic(partition.topic)
        case "pass time":
            w.sleep(rng.choice((1, 15, 60)))
        case "refuse":
            w.refuse()


@given(st.lists(st.sampled_from(EVENTS), min_size=10, max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_reload_of_any_prefix_knows_what_was_known_then(events: list[str], rng: random.Random) -> None:
    with group_world(settings=SETTINGS) as w:
        known = {0: knowledge(w.shard)}
        for event in events:
            happen(w, event, rng)
            known[len(w.log.batches)] = knowledge(w.shard)
        batches = [batch for _, batch in w.log.batches]
    for length, expected in known.items():
        assert knowledge(replayed(batches[:length])) == expected


@given(st.lists(st.sampled_from(EVENTS), min_size=10, max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_failover_at_the_end_of_the_log_loses_nothing(events: list[str], rng: random.Random) -> None:
    """Through the election and the loader, at the batch sizes that they see; and stable members stay members."""
    with group_world(settings=SETTINGS) as w:
        for event in events:
            happen(w, event, rng)
        w.log.refusals.clear()
        before = knowledge(w.shard)
        stable = {
            g: [(m.member_id, m.assignment) for m in group.roster]
            for g, group in w.shard.groups.items()
            if group.state is GroupState.STABLE
        }
        w.elect()
        w.load()
        assert knowledge(w.shard) == before
        for group_id, members in stable.items():
            assert [(m.member_id, m.assignment) for m in w.shard.groups[group_id].roster] == members
