"""Servers that a client cannot work with, as both are configured: reported with the setting, and not tried for ever."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from oncelog.coordinator.metadata_store.store import NotPermitted, SessionEvent, StoreUnavailable
from oncelog.coordinator.metadata_store.zookeeper import connect_zookeeper
from oncelog.coordinator.metadata_store.zookeeper_security import ZooKeeperSecurity
from oncelog.protocol.sasl.digest_login import DigestLogin
from tests.unit.coordinator.metadata_store.scripted_zookeeper import (
    AUTH_FAILED,
    PASSWORD,
    USER,
    Login,
    ScriptedZooKeeper,
    failed_creation,
)

pytestmark = pytest.mark.real_loop

JAAS = "oncelog.zookeeper.sasl.jaas.config"
SECURITY = ZooKeeperSecurity(login=DigestLogin(username=USER, password=PASSWORD))
SOON_SECONDS = 30.0
"""Less than the connection time-out, which is that of an ensemble that does not respond."""
SECONDS = 60.0


async def connect(server: ScriptedZooKeeper, security: ZooKeeperSecurity = SECURITY) -> None:
    store = await connect_zookeeper(
        server.address, session_timeout_ms=9_000, connection_timeout_ms=300_000, security=security
    )
    await store.close()


async def refusal(server: ScriptedZooKeeper, security: ZooKeeperSecurity = SECURITY) -> str:
    """What a start ends with, which is soon."""
    async with asyncio.timeout(SOON_SECONDS):
        with pytest.raises(StoreUnavailable) as refused:
            await connect(server, security)
    return str(refused.value)


async def test_login_with_the_right_password_is_accepted() -> None:
    async with ScriptedZooKeeper().serve() as server:
        await connect(server)
        assert len(server.login_times) == 1


async def test_server_that_takes_no_login_does_not_end_the_start_if_another_one_does() -> None:
    async with ScriptedZooKeeper().serve() as server, ScriptedZooKeeper().serve() as other:
        other.logins = Refusing
        for _ in range(4):  # The client begins with either.
            store = await connect_zookeeper(
                f"{other.address},{server.address}",
                session_timeout_ms=9_000,
                connection_timeout_ms=300_000,
                security=SECURITY,
            )
            await store.close()


@pytest.mark.parametrize(
    "login", [DigestLogin(username=USER, password="wrong"), DigestLogin(username="other", password=PASSWORD)]
)
async def test_wrong_password_ends_the_start_with_the_setting(login: DigestLogin) -> None:
    async with ScriptedZooKeeper().serve() as server:
        said = await refusal(server, ZooKeeperSecurity(login=login))
    assert f"does not accept user {login.username} with the password of {JAAS}" in said
    assert login.password not in said


class WithoutSasl(Login):
    def greet(self) -> bytes | int | None:
        return b""


class Refusing(Login):
    def greet(self) -> bytes | int | None:
        return AUTH_FAILED


class Failing(Login):
    def greet(self) -> bytes | int | None:
        return -6


class Malformed(Login):
    def greet(self) -> bytes | int | None:
        return b"nonce=,maxbuf=many"


class Requiring(Login):
    """A server that requires a login, where a password is wrong."""

    def judge(self, response: bytes) -> bytes | int | None:
        return -124


class Impostor(Login):
    def judge(self, response: bytes) -> bytes | int | None:
        return b"rspauth=" + b"0" * 32


class Lenient(Login):
    """A server that lets clients in whose login has failed (``zookeeper.allowSaslFailedClients``)."""

    def judge(self, response: bytes) -> bytes | int | None:
        return b""


class Endless(Login):
    def judge(self, response: bytes) -> bytes | int | None:
        return self.greet()


class BreakingOff(Login):
    def greet(self) -> bytes | int | None:
        return None


@pytest.mark.parametrize(
    ("login", "why"),
    [
        (WithoutSasl, f"does not take the login of {JAAS}"),
        (Failing, f"does not take the login of {JAAS}"),
        (Refusing, "does not accept user kafka"),
        (Requiring, "does not accept user kafka"),
        (Malformed, "has not proved that it knows the password"),
        (Impostor, "has not proved that it knows the password"),
        (Lenient, "does not accept user kafka"),
        (Endless, "has not proved that it knows the password"),
        (BreakingOff, f"breaks off the login of {JAAS}"),
    ],
)
async def test_server_that_takes_no_login_ends_the_start(login: Callable[[], Login], why: str) -> None:
    async with ScriptedZooKeeper().serve() as server:
        server.logins = login
        said = await refusal(server)
    assert f"{server.address} {why}" in said
    assert PASSWORD not in said


async def test_login_that_breaks_off_once_is_repeated() -> None:
    """As at a server that is being stopped: the session goes on with another."""
    made: list[Login] = []

    def next_login() -> Login:
        made.append(BreakingOff() if not made else Login())
        return made[-1]

    async with ScriptedZooKeeper().serve() as server:
        server.logins = next_login
        await connect(server)
    assert len(made) == 2


async def test_broker_that_is_refused_while_it_runs_ends_its_session_and_tries_again_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ScriptedZooKeeper().serve() as server:
        store = await connect_zookeeper(
            server.address, session_timeout_ms=9_000, connection_timeout_ms=300_000, security=SECURITY
        )
        ended, started, tried = asyncio.Event(), asyncio.Event(), asyncio.Event()
        events = {SessionEvent.ENDED: ended, SessionEvent.STARTED: started}
        store.add_session_listener(lambda event, _: events.get(event, asyncio.Event()).set())

        def refuse() -> Login:
            if len(server.login_times) == 9:
                tried.set()
            return Refusing()

        server.logins = refuse
        server.cut()
        async with asyncio.timeout(SECONDS):
            await ended.wait()
            assert store.session is None
            await tried.wait()
        assert server.login_times[8] - server.login_times[6] > 0.6  # 0.4 and 0.8 s, less two fifths at most.
        server.logins = Login
        async with asyncio.timeout(SECONDS):
            await started.wait()
        await store.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text for text in warnings if "does not accept user kafka" in text] == warnings[:1]


async def test_session_goes_on_at_another_server_if_one_refuses_the_login() -> None:
    async with ScriptedZooKeeper().serve() as server, ScriptedZooKeeper().serve() as other:
        store = await connect_zookeeper(
            f"{other.address},{server.address}",
            session_timeout_ms=9_000,
            connection_timeout_ms=300_000,
            security=SECURITY,
        )
        events: list[SessionEvent] = []
        resumed = asyncio.Event()
        store.add_session_listener(lambda event, _: events.append(event))
        store.add_session_listener(lambda event, _: resumed.set() if event is SessionEvent.RESUMED else None)
        other.logins = Refusing
        for _ in range(4):  # The client begins with either.
            resumed.clear()
            server.cut()
            other.cut()
            async with asyncio.timeout(SECONDS):
                await resumed.wait()
        assert SessionEvent.ENDED not in events
        await store.close()


async def test_log_has_neither_password_nor_response_nor_session_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with ScriptedZooKeeper().serve() as server:
        await connect(server)
    assert caplog.records
    assert not [text for text in caplog.messages if PASSWORD in text or "response=" in text or "pppp" in text]


async def test_server_that_accepts_users_only_ends_the_start_with_the_setting() -> None:
    async with ScriptedZooKeeper().serve() as server:
        server.look = lambda connection, xid: connection.reply(xid, -124)
        said = await refusal(server, ZooKeeperSecurity())
    assert f"accepts only clients that log in: set {JAAS}" in said


@pytest.mark.parametrize(
    ("protects", "path", "schemes"),
    [
        (True, "/config/users/alice", [b"auth"]),
        (True, "/brokers", [b"auth", b"world"]),
        (True, "/consumers", [b"world"]),
        (False, "/config/users/alice", [b"world"]),
    ],
)
async def test_created_znode_is_for_the_user_of_the_client_if_znodes_are_protected(
    protects: bool, path: str, schemes: list[bytes]
) -> None:
    security = ZooKeeperSecurity(login=SECURITY.login, protects_znodes=protects)
    async with ScriptedZooKeeper().serve() as server:
        store = await connect_zookeeper(
            f"{server.address}/chroot", session_timeout_ms=9_000, connection_timeout_ms=300_000, security=security
        )
        session = store.session
        assert session is not None
        await session.create(path)
        await store.close()
        chroot, created = server.created
    assert path.encode() in created
    assert [scheme for scheme in (b"auth", b"world") if scheme in created] == schemes
    assert (b"auth" in chroot) is protects


@pytest.mark.parametrize(("error", "why"), [(-102, "belongs to another user"), (-114, "ZooKeeper knows of none")])
async def test_znode_that_may_not_be_created_ends_the_start_with_the_setting(error: int, why: str) -> None:
    async with ScriptedZooKeeper().serve() as server:
        server.creation = lambda: failed_creation(error)
        with pytest.raises(NotPermitted, match=rf"/chroot.*{why}.*oncelog\.zookeeper\.sasl\.jaas\.config"):
            await connect_zookeeper(
                f"{server.address}/chroot", session_timeout_ms=9_000, connection_timeout_ms=300_000, security=SECURITY
            )
