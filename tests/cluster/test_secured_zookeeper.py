"""A real ZooKeeper with TLS, logins and access control lists: what brokers can do there, and others cannot."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from oncelog.coordinator.controller.membership import prepare
from oncelog.coordinator.metadata_store.store import (
    Create,
    Delete,
    MetadataStore,
    NotPermitted,
    SessionEvent,
    SetData,
    StoreUnavailable,
)
from oncelog.coordinator.metadata_store.znode_protection import open_znodes, protect_znodes
from oncelog.coordinator.metadata_store.zookeeper import ZooKeeperStore, connect_zookeeper, end_session
from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials
from oncelog.coordinator.metadata_store.zookeeper_security import ZooKeeperSecurity
from tests.cluster.secured_zookeeper import OTHER_USER, USER, SecuredZooKeeper, access_lists
from tests.command import Oncelog
from tests.unit.coordinator.metadata_store.contract import (
    PATIENCE_SECONDS,
    Hint,
    MetadataStoreContract,
    data_of,
    session_of,
)

READ, ALL = 1, 31
CREATOR = (ALL, "sasl", USER)
WORLD_READS = (READ, "world", "anyone")
SOON_SECONDS = 60.0
"""Less than the connection time-out."""
_chroots = itertools.count()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, zookeeper_jars: None) -> Iterator[SecuredZooKeeper]:
    made = SecuredZooKeeper(tmp_path_factory.mktemp("secured"))
    with made.server:
        yield made


class Brokers:
    """Clients below a chroot of their own, with the brokers' login unless another security is given."""

    def __init__(self, secured: SecuredZooKeeper) -> None:
        self.secured = secured
        self.chroot = f"/brokers-{next(_chroots)}"
        self._stores: list[ZooKeeperStore] = []

    async def connect(self, security: ZooKeeperSecurity | None = None) -> ZooKeeperStore:
        store = await connect_zookeeper(
            f"{self.secured.address}{self.chroot}",
            session_timeout_ms=10_000,
            connection_timeout_ms=PATIENCE_SECONDS * 1_000,
            security=self.security if security is None else security,
        )
        self._stores.append(store)
        return store

    @property
    def security(self) -> ZooKeeperSecurity:
        return self.secured.security(*self.secured.tls(), self.secured.login(), "zookeeper.set.acl=true")

    async def expire(self, store: MetadataStore) -> None:
        """Close its session from elsewhere, and wait for the next one."""
        credentials, started = store.credentials, Hint()
        assert credentials is not None
        store.add_session_listener(lambda event, _: started() if event is SessionEvent.STARTED else None)
        while not started.count:
            await self.end(credentials)
            try:
                async with asyncio.timeout(2.0):
                    await started.wait()
            except TimeoutError:
                continue  # Its owner took the session back before it was closed.

    async def end(self, credentials: SessionCredentials) -> None:
        await end_session(
            f"{self.secured.address}{self.chroot}",
            credentials,
            session_timeout_ms=10_000,
            connection_timeout_ms=PATIENCE_SECONDS * 1_000,
            security=self.security,
        )

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


@pytest.fixture
async def ensemble(secured: SecuredZooKeeper) -> AsyncIterator[Brokers]:
    under_test = Brokers(secured)
    yield under_test
    await under_test.close()


class TestSecuredZooKeeper(MetadataStoreContract):
    """The contract, by TLS, with a login, on znodes of the brokers' own."""


async def test_server_restart_keeps_sessions_over_tls_with_a_login(
    secured: SecuredZooKeeper, ensemble: Brokers
) -> None:
    store = await ensemble.connect()
    session, hint = session_of(store), Hint()
    await session.create("/e", b"mine", ephemeral=True)
    await session.get("/e", hint)
    await asyncio.to_thread(secured.server.kill)
    await hint.wait()
    await asyncio.to_thread(secured.server.start)
    assert await data_of(session, "/e") == b"mine"
    assert store.session is session
    assert await session.set("/e", b"mine still") is not None


async def test_ten_thousand_reads_over_tls_are_as_they_were_written(ensemble: Brokers) -> None:
    session = session_of(await ensemble.connect())
    paths = [f"/n{number}" for number in range(1_000)]
    await session.multi_many([[Create(path=path, data=path.encode() * 20)] for path in paths])
    for _ in range(10):
        found = await asyncio.gather(*(session.get(path) for path in paths))
        assert [znode and znode.data for znode in found] == [path.encode() * 20 for path in paths]


async def test_stranger_reads_what_has_no_secrets_and_changes_nothing(
    secured: SecuredZooKeeper, ensemble: Brokers
) -> None:
    session = session_of(await ensemble.connect())
    await prepare(session)
    await session.create("/config/users/alice", b"a salted password")
    await session.create("/controller_epoch", b"1")
    stranger = session_of(await ensemble.connect(secured.security(*secured.tls())))
    other = session_of(await ensemble.connect(secured.security(*secured.tls(), secured.login(OTHER_USER))))
    for visitor in (stranger, other):
        assert await data_of(visitor, "/controller_epoch") == b"1"
        assert await visitor.children("/brokers") == ["ids", "registrations", "seqid", "topics"]
        for path in ("/config/users", "/config/users/alice", "/config/brokers"):
            with pytest.raises(NotPermitted, match=f"does not let this broker use {path},.*sasl.jaas.config"):
                await visitor.get(path)
            with pytest.raises(NotPermitted, match=path):
                await visitor.get_many(["/brokers", path])
        with pytest.raises(NotPermitted):
            await visitor.children("/config/users")
        for change in (
            Create(path="/brokers/ids/9", data=b"", ephemeral=True),
            Create(path="/controller"),
            SetData(path="/controller_epoch", data=b"9"),
            Delete(path="/controller_epoch"),
            Delete(path="/config/users/alice"),
        ):
            with pytest.raises(NotPermitted, match=change.path.rpartition("/")[0] or "/"):
                await visitor.multi([change])
    assert await data_of(session, "/controller_epoch") == b"1"
    assert await data_of(session, "/config/users/alice") == b"a salted password"


async def test_certificate_makes_a_user_to_whom_znodes_belong(secured: SecuredZooKeeper, ensemble: Brokers) -> None:
    def security(certificate: str) -> ZooKeeperSecurity:
        return secured.security(*secured.tls(certificate), "zookeeper.set.acl=true")

    session = session_of(await ensemble.connect(security(secured.broker_certificate)))
    await session.create("/feature", b"levels")
    again = session_of(await ensemble.connect(security(secured.broker_certificate)))
    await again.set("/feature", b"others")
    other = session_of(await ensemble.connect(security(secured.other_certificate)))
    with pytest.raises(NotPermitted, match=r"zookeeper\.ssl\.keystore\.location"):
        await other.set("/feature", b"mine")
    with secured.observer(as_user=True) as client:
        assert access_lists(client, ensemble.chroot)["/feature"] == {(ALL, "x509", "CN=broker"), WORLD_READS}


async def test_broker_whom_zookeeper_does_not_know_cannot_protect_znodes(
    secured: SecuredZooKeeper, ensemble: Brokers
) -> None:
    """It has a certificate by its settings, and the server has not taken it: at a port without TLS, say."""
    security = ZooKeeperSecurity(tls=secured.security(*secured.tls()).tls, protects_znodes=True)
    with pytest.raises(NotPermitted, match=r"zookeeper\.set\.acl=true"):
        await ensemble.connect(security)


async def refusal(address: str, security: ZooKeeperSecurity) -> str:
    async with asyncio.timeout(SOON_SECONDS):
        with pytest.raises(StoreUnavailable) as refused:
            await connect_zookeeper(
                address, session_timeout_ms=10_000, connection_timeout_ms=PATIENCE_SECONDS * 1_000, security=security
            )
    return str(refused.value)


async def test_server_that_does_not_work_with_a_broker_ends_its_start_with_the_setting(
    secured: SecuredZooKeeper, zookeeper: ZooKeeperServer
) -> None:
    jaas = "oncelog.zookeeper.sasl.jaas.config"
    with_tls = secured.security(*secured.tls())
    wrong = secured.security(*secured.tls(), secured.login(USER, "wrong"))
    assert f"does not accept user {USER} with the password of {jaas}" in await refusal(secured.address, wrong)
    unknown = secured.security(*secured.tls(), secured.login("stranger"))
    assert f"does not accept user stranger with the password of {jaas}" in await refusal(secured.address, unknown)
    system = secured.security("zookeeper.ssl.client.enable=true", secured.login())
    assert "set zookeeper.ssl.truststore.location" in await refusal(secured.address, system)
    by_name = secured.address.replace("127.0.0.1", "localhost")
    assert "name ZooKeeper in zookeeper.connect as its" in await refusal(by_name, with_tls)
    assert "speaks TLS: set zookeeper.ssl.client.enable=true" in await refusal(secured.address, ZooKeeperSecurity())
    assert "does not speak TLS: name its secureClientPort" in await refusal(zookeeper.address, with_tls)
    login = ZooKeeperSecurity(login=with_login(secured).login)
    assert f"does not take the login of {jaas}" in await refusal(zookeeper.address, login)


def with_login(secured: SecuredZooKeeper) -> ZooKeeperSecurity:
    return secured.security(*secured.tls(), secured.login())


async def test_open_znodes_are_protected_by_the_command_and_opened_again(
    secured: SecuredZooKeeper, ensemble: Brokers, tmp_path: Path
) -> None:
    session = session_of(await ensemble.connect(with_login(secured)))
    await prepare(session)
    await session.create("/config/users/alice", b"a salted password")
    await session.create("/elsewhere", b"of another program")
    file = tmp_path / "server.properties"
    settings = [line.replace("\\\\", "\\\\\\\\") for line in secured.settings(ensemble.chroot)]
    file.write_text("\n".join(settings) + "\n")
    oncelog = Oncelog("")
    with secured.observer(as_user=True) as client:
        before = access_lists(client, ensemble.chroot)
        assert set(before.values()) == {frozenset({(ALL, "world", "anyone")})}
        said = oncelog(f"znodes protect --config {file}")
        after = access_lists(client, ensemble.chroot)
        open_ones = {path for path, acls in after.items() if (ALL, "world", "anyone") in acls}
        assert open_ones == {"/consumers", "/elsewhere"}
        secret = {path for path, acls in after.items() if acls == {CREATOR}}
        assert secret == {"/config/users", "/config/users/alice", "/config/brokers"}
        assert all(after[path] == {CREATOR, WORLD_READS} for path in set(after) - open_ones - secret)
        assert said == f"{len(after) - 2} znodes are protected; 3 of them can be read by the brokers only\n"
        with secured.observer(as_user=False) as stranger, pytest.raises(NoAuthError):
            stranger.get(f"{ensemble.chroot}/config/users/alice")
        oncelog(f"znodes unprotect --config {file}")
        assert access_lists(client, ensemble.chroot) == before


async def test_protection_by_a_user_to_whom_the_znodes_do_not_belong_fails_with_the_setting(
    secured: SecuredZooKeeper, ensemble: Brokers
) -> None:
    await prepare(session_of(await ensemble.connect()))
    words = [f"--set={each}" for each in (*secured.tls(), secured.login(OTHER_USER))]
    oncelog = Oncelog("")
    done = oncelog.run(["znodes", "protect", "--zookeeper", f"{secured.address}{ensemble.chroot}", *words])
    assert done.returncode == 1
    assert "oncelog.zookeeper.sasl.jaas.config" in done.stderr
    assert "Traceback" not in done.stderr
    other = session_of(await ensemble.connect(secured.security(*secured.tls(), secured.login(OTHER_USER))))
    for change in (protect_znodes, open_znodes):
        with pytest.raises(NotPermitted):
            await change(other)
