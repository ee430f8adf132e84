"""Access control lists in the metadata store: Kafka's znodes, and how every broker comes to know a change."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from oncelog.coordinator.controller.acl_changes import Addition, Change, Entries, Removal
from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.controller.api_error import NO_ERROR
from oncelog.coordinator.metadata_store import acl_znodes
from oncelog.coordinator.metadata_store.local import LocalStore
from oncelog.coordinator.metadata_store.store import ConnectionLost, MultiResult, Operation, Session, Znode
from oncelog.coordinator.metadata_store.znodes import MalformedZnode
from oncelog.protocol import acl
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster

T1 = ResourcePattern(AclResourceType.TOPIC, "t1")
TX = ResourcePattern(AclResourceType.TRANSACTIONAL_ID, "tx", PatternType.PREFIXED)
WRITE = AccessControlEntry("User:alice", "*", acl.AclOperation.WRITE, AclPermissionType.ALLOW)
READ = WRITE._replace(operation=acl.AclOperation.READ)
DENY = AccessControlEntry("User:bob", "10.0.0.1", acl.AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)
ALL_DENIED = AccessControlEntry("User:*", "*", acl.AclOperation.ALL, AclPermissionType.DENY)


def adding(*entries: AccessControlEntry) -> Change:
    return Addition(frozenset(entries))


REMOVE_ALL = Removal((AclBindingFilter(),))


class Follower:
    """A broker's repository, and what it passed on."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.heard: list[Mapping[ResourcePattern, Entries]] = []
        self.acls = AclRepository(store, self.heard.append)
        self.changed = asyncio.Event()

    @property
    def session(self) -> Session:
        session: Session | None = self.store.session
        assert session is not None
        return session

    async def load(self) -> "Follower":
        await self.acls.load(self.session, self.changed.set)
        return self

    async def refresh(self) -> None:
        """Read what changed, once the watch says so."""
        await self.changed.wait()
        self.changed.clear()
        await self.acls.refresh(self.session, self.changed.set)


async def followers(number: int = 1) -> list[Follower]:
    cluster = ClusterUnderTest()
    return [await Follower(cluster.ensemble.connect()).load() for _ in range(number)]


async def content(follower: Follower, path: str) -> bytes | None:
    znode = await follower.session.get(path)
    return None if znode is None else znode.data


async def change(follower: Follower, pattern: ResourcePattern, change: Change) -> Entries:
    """Make a change that succeeds. Returns what it removed."""
    result = (await follower.acls.change({pattern: change}))[pattern]
    assert result.error == NO_ERROR
    return result.removed


async def test_literal_entries_and_their_change_are_kafkas_znodes() -> None:
    (broker,) = await followers()
    await change(broker, T1, adding(WRITE))
    assert await content(broker, "/kafka-acl/Topic/t1") == (
        b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Write"}],"version":1}'
    )
    assert await content(broker, "/kafka-acl-changes/acl_changes_0000000000") == b"TOPIC:t1"
    assert await broker.session.children("/kafka-acl-extended-changes") == []


async def test_prefixed_entries_and_their_change_are_kafkas_znodes() -> None:
    (broker,) = await followers()
    await change(broker, TX, adding(DENY))
    stored = await content(broker, "/kafka-acl-extended/prefixed/TransactionalId/tx")
    assert json.loads(stored or b"")["acls"] == [
        {"principal": "User:bob", "permissionType": "Deny", "host": "10.0.0.1", "operation": "DescribeConfigs"}
    ]
    assert await content(broker, "/kafka-acl-extended-changes/acl_changes_0000000000") == (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx","patternType":"PREFIXED"}'
    )


@pytest.mark.parametrize("kind", ["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"])
async def test_folders_of_every_resource_type_are_made(kind: str) -> None:
    (broker,) = await followers()
    assert await content(broker, f"/kafka-acl/{kind}") == b""
    assert await content(broker, f"/kafka-acl-extended/prefixed/{kind}") == b""


async def test_change_reaches_another_broker_as_one_piece_of_news() -> None:
    one, other = await followers(2)
    await one.acls.change({T1: adding(WRITE, READ), TX: adding(DENY)})
    await other.refresh()
    assert other.heard[1:] == [{T1: {WRITE, READ}, TX: {DENY}}]
    await change(one, T1, Removal((AclBindingFilter(operation=acl.AclOperation.READ),)))
    await other.refresh()
    assert other.heard[2:] == [{T1: {WRITE}}]
    assert await change(one, T1, REMOVE_ALL) == {WRITE}
    await other.refresh()
    assert other.acls.acls == {TX: {DENY}}
    assert await content(one, "/kafka-acl/Topic/t1") is None


async def test_own_change_is_known_when_it_is_done_and_passed_on_once() -> None:
    (broker,) = await followers()
    await change(broker, T1, adding(WRITE))
    assert broker.acls.acls == {T1: {WRITE}}
    await broker.refresh()
    assert broker.heard == [{}, {T1: {WRITE}}]


async def test_entry_that_exists_already_is_not_written_again() -> None:
    (broker,) = await followers()
    await change(broker, T1, adding(WRITE))
    await change(broker, T1, adding(WRITE))
    assert await broker.session.children("/kafka-acl-changes") == ["acl_changes_0000000000"]


async def test_deletion_sees_what_another_broker_has_just_added() -> None:
    one, other = await followers(2)
    await change(one, T1, adding(WRITE))
    await other.acls.catch_up()
    assert other.acls.acls == {T1: {WRITE}}


class Delegate:
    """A session that does what another one does."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


class ReadsLate(Delegate):
    """A session that holds what it has read back."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.has_read, self.goes_on = asyncio.Event(), asyncio.Event()

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        found = await self.session.get_many(paths)
        if "/kafka-acl/Topic/t1" in paths:
            self.has_read.set()
            await self.goes_on.wait()
        return found


async def test_removed_znode_is_not_brought_back_by_a_read_that_began_before() -> None:
    one, other = await followers(2)
    await change(one, T1, adding(WRITE))
    late = ReadsLate(other.session)
    refresh = asyncio.ensure_future(other.acls.refresh(late, other.changed.set))  # type: ignore[arg-type]  # noqa: TID251
    await late.has_read.wait()
    await change(other, T1, REMOVE_ALL)
    late.goes_on.set()
    await refresh
    assert other.acls.acls == {}
    assert other.heard == [{}]


class LosesResponses(Delegate):
    """A session whose connection breaks after a write that was made, once."""

    lost = 0

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        result = await self.session.multi_many(batches)
        if not self.lost:
            self.lost += 1
            raise ConnectionLost("after the write")
        return result


class StoreOf:
    def __init__(self, session: object) -> None:
        self.session = session


@pytest.mark.parametrize("before", [[], [DENY]])
async def test_changes_of_two_brokers_at_once_are_both_made(before: list[AccessControlEntry]) -> None:
    one, other = await followers(2)
    await change(one, T1, adding(*before))
    late = ReadsLate(other.session)
    slow = AclRepository(StoreOf(late), lambda news: None)  # type: ignore[arg-type]
    slow_change = asyncio.ensure_future(slow.change({T1: adding(READ)}))  # noqa: TID251
    await late.has_read.wait()
    await change(one, T1, adding(WRITE))
    late.goes_on.set()
    assert (await slow_change)[T1].error == NO_ERROR
    await one.acls.catch_up()
    assert one.acls.acls == {T1: {WRITE, READ, *before}}


async def test_removal_whose_response_was_lost_still_names_what_it_removed() -> None:
    (broker,) = await followers()
    await change(broker, T1, adding(WRITE))
    lossy = AclRepository(StoreOf(LosesResponses(broker.session)), lambda news: None)  # type: ignore[arg-type]
    await lossy.load(broker.session, lambda: None)
    result = (await lossy.change({T1: REMOVE_ALL}))[T1]
    assert (result.error, result.removed) == (NO_ERROR, {WRITE})
    assert await content(broker, "/kafka-acl/Topic/t1") is None


async def test_change_without_a_store_is_refused() -> None:
    async with running_cluster(1) as cluster:
        acls = AclRepository(cluster.members[1].store, lambda news: None)
        cluster.disk.fail("sync", ".journal")
        result = (await acls.change({T1: adding(WRITE)}))[T1]
        assert result.error.code is ErrorCode.REQUEST_TIMED_OUT


async def test_malformed_znode_denies_everything_until_it_is_mended() -> None:
    (broker,) = await followers()
    await broker.session.create("/kafka-acl/Topic/t1", b"not json")
    await broker.load()
    assert broker.acls.acls == {T1: {ALL_DENIED}}
    refused = (await broker.acls.change({T1: adding(WRITE)}))[T1].error
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert "/kafka-acl/Topic/t1 is malformed" in (refused.message or "")
    broker.changed.clear()
    await broker.session.set("/kafka-acl/Topic/t1", acl_znodes.encode_entries([WRITE]))
    await broker.refresh()
    assert broker.acls.acls == {T1: {WRITE}}


async def test_znode_that_becomes_malformed_leaves_what_was_known() -> None:
    (broker,) = await followers()
    await change(broker, T1, adding(WRITE))
    await broker.session.set("/kafka-acl/Topic/t1", b"{}")
    await broker.load()
    assert broker.acls.acls == {T1: {WRITE}}


async def test_notification_that_cannot_be_read_is_ignored() -> None:
    (broker,) = await followers()
    for folder in acl_znodes.CHANGE_FOLDERS:
        await broker.session.create(f"{folder}/acl_changes_", b"nonsense", sequential=True)
    await broker.refresh()
    await change(broker, T1, adding(WRITE))
    assert broker.acls.acls == {T1: {WRITE}}


async def test_notifications_do_not_pile_up_and_a_late_broker_reads_everything() -> None:
    one, late = await followers(2)
    await change(one, TX, adding(DENY))
    for number in range(1_050):
        await change(one, T1, adding(WRITE) if number % 2 == 0 else REMOVE_ALL)
        await change(one, TX._replace(name=f"tx{number % 2}"), adding(DENY) if number % 4 < 2 else REMOVE_ALL)
        if number % 50 == 0:
            await one.refresh()
    await one.refresh()
    for folder in acl_znodes.CHANGE_FOLDERS:
        assert len(await one.session.children(folder) or ()) < 1_000
    await late.refresh()
    assert late.acls.acls == one.acls.acls
    assert late.acls.acls[TX] == {DENY}


async def test_thousand_patterns_are_changed_together() -> None:
    (broker,) = await followers()
    patterns = [T1._replace(name=f"t{number}") for number in range(1_200)]
    results = await broker.acls.change({pattern: adding(WRITE) for pattern in patterns})
    assert {result.error for result in results.values()} == {NO_ERROR}
    assert broker.acls.acls.keys() == set(patterns)
    reloaded = await Follower(broker.store).load()
    assert reloaded.acls.acls == broker.acls.acls


def every_entry() -> Iterable[AccessControlEntry]:
    for operation in acl.OPERATIONS:
        for permission in (AclPermissionType.ALLOW, AclPermissionType.DENY):
            yield AccessControlEntry("User:å:b", "::1", operation, permission)


def test_entries_of_every_operation_are_decoded_as_they_were_encoded() -> None:
    entries = frozenset(every_entry())
    data = acl_znodes.encode_entries(entries)
    assert acl_znodes.decode_entries(data) == entries
    assert {"ClusterAction", "IdempotentWrite", "TwoPhaseCommit"} <= {e["operation"] for e in json.loads(data)["acls"]}
    assert acl_znodes.decode_entries(b"") == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{"principal":"User:a"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Fly"}]}',
        b'{"version":1,"acls":[{"principal":7,"permissionType":"Allow","host":"*","operation":"Read"}]}',
    ],
)
def test_data_that_is_no_entries_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        acl_znodes.decode_entries(data)


@pytest.mark.parametrize("pattern", [T1, TX, T1._replace(name="a:b"), TX._replace(name="*")])
def test_change_is_decoded_as_it_was_encoded(pattern: ResourcePattern) -> None:
    folder = acl_znodes.change_prefix(pattern).rpartition("/")[0]
    assert acl_znodes.decode_change(folder, acl_znodes.encode_change(pattern)) == pattern
