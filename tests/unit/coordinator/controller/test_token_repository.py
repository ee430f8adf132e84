"""Delegation tokens in the metadata store: Kafka's znodes, and how every broker comes to know a change."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from oncelog.coordinator.controller.delegation_tokens import expire, remove_if_expired, renew, token_hmac
from oncelog.coordinator.controller.token_repository import Decide, TokenRepository
from oncelog.coordinator.metadata_store import token_znodes
from oncelog.coordinator.metadata_store.local import LocalStore
from oncelog.coordinator.metadata_store.store import ConnectionLost, MultiResult, Operation, Session, Watch, Znode
from oncelog.coordinator.metadata_store.znodes import MalformedZnode
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.principal import Principal
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster
from tests.unit.coordinator.controller.test_delegation_tokens import LIMITS, NOW

ALICE, ADMIN = Principal("User", "alice"), Principal("User", "admin")
ID = "ua5cey91Qx2ffVPJ39yBcw"
SECRET = b"sesame-open"
TOKEN = TokenInformation(
    token_id=ID,
    owner=ADMIN,
    requester=ADMIN,
    renewers=(ALICE,),
    issue_timestamp_ms=1795338876096,
    max_timestamp_ms=1795342476096,
    expiry_timestamp_ms=1795342476096,
)
KAFKAS = (
    '{"issueTimestamp":1795338876096,"renewers":["User%3Aalice"],"tokenRequester":"User%3Aadmin",'
    '"tokenId":"ua5cey91Qx2ffVPJ39yBcw","owner":"User%3Aadmin","expiryTimestamp":1795342476096,'
    '"maxTimestamp":1795342476096,"version":3}'
)
"""What Kafka 3.9.1 wrote."""
PATH = f"/delegation_token/tokens/{ID}"
SECONDS = 5.0


def repository(store: Any, max_count: int = 2_000) -> TokenRepository:
    return TokenRepository(store, SECRET, max_count=max_count)


class Follower:
    """A broker's repository."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.tokens = repository(store)
        self.changed = asyncio.Event()

    @property
    def session(self) -> Session:
        session: Session | None = self.store.session
        assert session is not None
        return session

    async def load(self) -> "Follower":
        await self.tokens.load(self.session, self.changed.set)
        return self

    async def refresh(self) -> None:
        """Read what changed, once the watch says so."""
        await self.changed.wait()
        self.changed.clear()
        await self.tokens.refresh(self.session, self.changed.set)

    async def create(self, token: TokenInformation = TOKEN) -> None:
        assert await self.tokens.create(token, timeout_seconds=SECONDS) is ErrorCode.NONE

    async def change(self, decide: Decide, token_id: str = ID) -> TokenInformation | ErrorCode | None:
        return await self.tokens.change(token_id, decide, timeout_seconds=SECONDS)


async def followers(number: int = 1) -> list[Follower]:
    cluster = ClusterUnderTest()
    return [await Follower(cluster.ensemble.connect()).load() for _ in range(number)]


async def content(follower: Follower, path: str) -> bytes | None:
    znode = await follower.session.get(path)
    return None if znode is None else znode.data


async def test_token_and_its_change_are_kafkas_znodes() -> None:
    (broker,) = await followers()
    await broker.create()
    assert json.loads(await content(broker, PATH) or b"") == json.loads(KAFKAS)
    assert await content(broker, "/delegation_token/token_changes/token_change_0000000000") == ID.encode()
    await broker.change(lambda token: None)
    assert await content(broker, PATH) is None
    assert await content(broker, "/delegation_token/token_changes/token_change_0000000001") == ID.encode()


async def test_token_of_kafka_is_read_with_the_hmac_of_its_id() -> None:
    (broker,) = await followers()
    await broker.session.create(PATH, KAFKAS.encode())
    await broker.session.create("/delegation_token/token_changes/token_change_", ID.encode(), sequential=True)
    await broker.refresh()
    assert broker.tokens.tokens == {ID: TOKEN}
    secret = token_hmac(SECRET, ID)
    assert broker.tokens.hmac_of(ID) == secret
    assert broker.tokens.find(secret) == ID
    assert [broker.tokens.find(other) for other in (b"", secret[:-1], secret + b"x", ID.encode())] == [None] * 4


@pytest.mark.parametrize(
    "principal", [Principal("User", "CN=Al ice,O=Ünit*~"), Principal("User", "a:b/c%41"), Principal("User", "")]
)
def test_znode_holds_any_principal(principal: Principal) -> None:
    token = replace(TOKEN, owner=principal, renewers=(principal, ADMIN))
    assert token_znodes.decode_token(ID, token_znodes.encode_token(token)) == token


def test_znode_of_an_old_kafka_names_no_requester() -> None:
    old = json.loads(KAFKAS) | {"version": 1, "owner": "User%3Aalice"}
    del old["tokenRequester"]
    assert token_znodes.decode_token(ID, json.dumps(old).encode()).requester == ALICE


@pytest.mark.parametrize(
    "change",
    [{"version": 4}, {"tokenId": "x"}, {"owner": "alice"}, {"owner": 1}, {"maxTimestamp": "1"}, {"renewers": [None]}],
)
async def test_malformed_znode_is_no_token(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedZnode):
        token_znodes.decode_token(ID, json.dumps(json.loads(KAFKAS) | change).encode())
    (broker,) = await followers()
    await broker.create()
    await broker.session.set(PATH, json.dumps(json.loads(KAFKAS) | change).encode())
    await broker.load()
    assert broker.tokens.tokens == {}
    assert broker.tokens.find(token_hmac(SECRET, ID)) is None
    assert await broker.change(lambda token: None) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_changes_reach_another_broker_and_one_that_starts_later() -> None:
    one, other = await followers(2)
    await one.create()
    await other.refresh()
    assert other.tokens.tokens == {ID: TOKEN}
    renewed = await other.change(lambda token: replace(token, expiry_timestamp_ms=7))
    assert renewed == replace(TOKEN, expiry_timestamp_ms=7)
    await one.refresh()
    assert one.tokens.tokens == {ID: renewed}
    assert (await one.load()).tokens.tokens == {ID: renewed}
    await one.change(lambda token: None)
    await other.refresh()
    assert other.tokens.tokens == {}
    assert other.tokens.find(token_hmac(SECRET, ID)) is None
    late = await Follower(one.store).load()
    assert late.tokens.tokens == {}


async def test_broker_that_catches_up_finds_what_another_has_just_created() -> None:
    one, other = await followers(2)
    await one.create()
    await other.tokens.catch_up()
    assert other.tokens.find(token_hmac(SECRET, ID)) == ID


async def test_token_that_is_renewed_at_one_broker_is_not_removed_as_expired_by_another() -> None:
    one, other = await followers(2)
    token = replace(TOKEN, max_timestamp_ms=NOW + 7_000, expiry_timestamp_ms=NOW)
    await one.create(token)
    await other.tokens.catch_up()

    class RenewedMeanwhile(Delegate):
        async def multi(self, operations: Sequence[Operation]) -> MultiResult:
            self.multi = self.session.multi  # type: ignore[method-assign]
            renewed = await one.change(lambda stored: renew(stored, ADMIN, -1, LIMITS, NOW))
            assert isinstance(renewed, TokenInformation)
            return await self.session.multi(operations)

    sweeping = repository(StoreOf(RenewedMeanwhile(other.session)))
    await sweeping.load(other.session, lambda: None)
    await sweeping.remove_expired(NOW + 1, timeout_seconds=SECONDS)
    assert sweeping.tokens[ID].expiry_timestamp_ms == NOW + 1_000
    await one.tokens.remove_expired(NOW + 1_001, timeout_seconds=SECONDS)
    assert await content(one, PATH) is None


async def test_decision_is_made_on_what_is_stored_and_not_on_what_this_broker_has_read() -> None:
    one, other = await followers(2)
    await one.create(replace(TOKEN, expiry_timestamp_ms=NOW, max_timestamp_ms=NOW + 7_000))
    await other.tokens.catch_up()
    await one.change(lambda stored: renew(stored, ADMIN, -1, LIMITS, NOW))
    renewed = await other.change(lambda stored: renew(stored, ADMIN, -1, LIMITS, NOW + 500))
    assert isinstance(renewed, TokenInformation)
    assert renewed.expiry_timestamp_ms == NOW + 1_500


async def test_decision_that_changes_nothing_writes_nothing() -> None:
    (broker,) = await followers()
    await broker.create()
    assert await broker.change(lambda token: remove_if_expired(token, 0)) == TOKEN
    assert await broker.change(lambda token: expire(token, ALICE, 0, 2**62)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert len(await broker.session.children("/delegation_token/token_changes") or ()) == 1


class Delegate:
    """A session that does what another one does."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


class StoreOf:
    def __init__(self, session: object) -> None:
        self.session = session


class LosesResponses(Delegate):
    """A session whose connection breaks after a write that was made, once."""

    lost = 0

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        result = await self.session.multi(operations)
        if not self.lost:
            self.lost += 1
            raise ConnectionLost("after the write")
        return result


async def lossy(broker: Follower) -> TokenRepository:
    tokens = repository(StoreOf(LosesResponses(broker.session)))
    await tokens.load(broker.session, lambda: None)
    return tokens


async def test_creation_whose_response_was_lost_is_made_once() -> None:
    (broker,) = await followers()
    tokens = await lossy(broker)
    assert await tokens.create(TOKEN, timeout_seconds=SECONDS) is ErrorCode.NONE
    assert await broker.session.children("/delegation_token/tokens") == [ID]


async def test_removal_whose_response_was_lost_is_a_success() -> None:
    (broker,) = await followers()
    await broker.create()
    tokens = await lossy(broker)
    assert await tokens.change(ID, lambda token: None, timeout_seconds=SECONDS) is None
    assert await content(broker, PATH) is None


class ReadsLate(Delegate):
    """A session that holds back what it has read of the token."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.has_read, self.goes_on = asyncio.Event(), asyncio.Event()

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        found = await self.session.get_many(paths)
        if PATH in paths:
            self.has_read.set()
            await self.goes_on.wait()
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        return await self.session.children(path, watch)


async def test_removed_token_is_not_brought_back_by_a_read_that_began_before() -> None:
    one, other = await followers(2)
    await one.create()
    late = ReadsLate(other.session)
    refresh = asyncio.ensure_future(other.tokens.refresh(late, other.changed.set))  # type: ignore[arg-type]  # noqa: TID251
    await late.has_read.wait()
    assert await other.change(lambda token: None) is None
    late.goes_on.set()
    await refresh
    assert other.tokens.tokens == {}


async def test_tokens_beyond_the_limits_are_refused() -> None:
    (broker,) = await followers()
    few = repository(broker.store, max_count=1)
    assert await few.create(TOKEN, timeout_seconds=SECONDS) is ErrorCode.NONE
    assert await few.create(replace(TOKEN, token_id="b"), timeout_seconds=SECONDS) is ErrorCode.POLICY_VIOLATION
    large = replace(TOKEN, token_id="c", renewers=tuple(Principal("User", "n" * 1_000 + str(n)) for n in range(100)))
    assert await broker.tokens.create(large, timeout_seconds=SECONDS) is ErrorCode.INVALID_REQUEST
    assert await broker.session.children("/delegation_token/tokens") == [ID]


async def test_change_without_a_store_is_refused() -> None:
    async with running_cluster(1) as cluster:
        broker = await Follower(cluster.members[1].store).load()
        await broker.create()
        tokens = broker.tokens
        cluster.disk.fail("sync", ".journal")
        other = replace(TOKEN, token_id="other")
        assert await tokens.create(other, timeout_seconds=SECONDS) is ErrorCode.REQUEST_TIMED_OUT
        assert await tokens.change(ID, lambda token: None, timeout_seconds=SECONDS) is ErrorCode.REQUEST_TIMED_OUT


async def test_notifications_that_are_not_ids_are_ignored() -> None:
    (broker,) = await followers()
    for nonsense in (b"", b"..", b"a/b", b"\xff", b"x" * 100):
        await broker.session.create("/delegation_token/token_changes/token_change_", nonsense, sequential=True)
    await broker.refresh()
    await broker.create()
    assert broker.tokens.tokens == {ID: TOKEN}


async def test_notifications_do_not_pile_up_and_a_late_broker_reads_everything() -> None:
    one, late = await followers(2)
    await one.create()
    for number in range(1_050):
        await one.create(replace(TOKEN, token_id=f"t{number}"))
        if number % 50 == 0:
            await one.refresh()
    await one.refresh()
    assert len(await one.session.children("/delegation_token/token_changes") or ()) < 1_000
    await late.refresh()
    assert late.tokens.tokens == one.tokens.tokens
    assert len(late.tokens.tokens) == 1_051
