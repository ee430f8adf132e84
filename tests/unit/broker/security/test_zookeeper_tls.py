"""TLS to ZooKeeper: whom a broker trusts, what it says of whom it does not, and certificates that are replaced."""

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.security.zookeeper_tls import ZooKeeperTls
from oncelog.clients.tls import TlsSettings
from oncelog.coordinator.metadata_store.store import Session, StoreUnavailable
from oncelog.coordinator.metadata_store.zookeeper import ZooKeeperStore, connect_zookeeper
from oncelog.coordinator.metadata_store.zookeeper_security import ZooKeeperSecurity
from tests.certificates import Identity, make_authority
from tests.unit.coordinator.metadata_store.scripted_zookeeper import ScriptedZooKeeper, empty_znode

pytestmark = pytest.mark.real_loop

SOON_SECONDS = 30.0
SECONDS = 60.0
AUTHORITY = make_authority("authority")


def trusting(directory: Path, authority: Identity = AUTHORITY) -> TlsSettings:
    file = directory / "ca.pem"
    file.write_bytes(authority.certificate_pem)
    return TlsSettings(trusted_file=str(file))


def server_context(identity: Identity, directory: Path, *, requires_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = directory / "server.pem"
    file.write_bytes(identity.pem())
    context.load_cert_chain(file)
    if requires_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=AUTHORITY.certificate_pem.decode())
    return context


async def connect(server: ScriptedZooKeeper, security: ZooKeeperSecurity) -> ZooKeeperStore:
    return await connect_zookeeper(
        server.address, session_timeout_ms=server.timeout_ms, connection_timeout_ms=300_000, security=security
    )


@asynccontextmanager
async def session(server: ScriptedZooKeeper, tls: ZooKeeperTls) -> AsyncIterator[Session]:
    store = await connect(server, ZooKeeperSecurity(tls=tls))
    try:
        assert store.session is not None
        yield store.session
    finally:
        await store.close()


async def refusal(server: ScriptedZooKeeper, security: ZooKeeperSecurity) -> str:
    """What a start ends with, which is soon."""
    async with asyncio.timeout(SOON_SECONDS):
        with pytest.raises(StoreUnavailable) as refused:
            await connect(server, security)
    return str(refused.value)


async def test_server_with_a_certificate_of_the_authority_is_trusted(tmp_path: Path) -> None:
    context = server_context(AUTHORITY.issue("zk"), tmp_path)
    async with ScriptedZooKeeper().serve(context) as server, session(server, ZooKeeperTls(trusting(tmp_path))) as here:
        assert here.is_live()


UNTRUSTED = "set zookeeper.ssl.truststore.location to the certificate of the authority that signed ZooKeeper's"
CERTIFICATES: Mapping[str, tuple[Identity, str]] = {
    "another authority": (make_authority("another").issue("zk"), UNTRUSTED),
    "another host": (AUTHORITY.issue("zk", "zookeeper.example"), "name ZooKeeper in zookeeper.connect as its"),
    "expired": (AUTHORITY.issue("zk", days=(-9, -1)), "renew ZooKeeper's certificate"),
}


@pytest.mark.parametrize("case", CERTIFICATES)
async def test_certificate_that_is_not_accepted_ends_the_start_with_the_setting(case: str, tmp_path: Path) -> None:
    identity, remedy = CERTIFICATES[case]
    async with ScriptedZooKeeper().serve(server_context(identity, tmp_path)) as server:
        said = await refusal(server, ZooKeeperSecurity(tls=ZooKeeperTls(trusting(tmp_path))))
        assert not server.login_times
    assert f"{server.address} cannot be reached by TLS: its certificate is not accepted" in said
    assert remedy in said


async def test_host_name_is_not_compared_if_the_setting_says_so(tmp_path: Path) -> None:
    identity = AUTHORITY.issue("zk", "zookeeper.example")
    async with ScriptedZooKeeper().serve(server_context(identity, tmp_path)) as server:
        tls = ZooKeeperTls(replace(trusting(tmp_path), checks_host=False))
        async with session(server, tls) as current:
            assert current.is_live()


class HandshakeServer:
    """A server that does handshakes in a thread, where OpenSSL tells the client why one fails, and nothing else."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="handshakes")

    def __enter__(self) -> ScriptedZooKeeper:
        self._thread.start()
        server = ScriptedZooKeeper()
        server.port = self.port
        return server

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(SECONDS)
            end = os.dup(connection.fileno())
            with suppress(OSError):
                self._context.wrap_socket(connection, server_side=True).close()
            with socket.socket(fileno=end) as rest, suppress(OSError):
                rest.shutdown(socket.SHUT_WR)
                while rest.recv(4096):  # What is left unread would take the alert back.
                    pass


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_missing_certificate_of_the_broker_ends_the_start_with_the_setting(version: str, tmp_path: Path) -> None:
    context = server_context(AUTHORITY.issue("zk"), tmp_path, requires_client=True)
    with HandshakeServer(context) as server:
        tls = ZooKeeperTls(replace(trusting(tmp_path), versions=(version,)))
        assert "set zookeeper.ssl.keystore.location" in await refusal(server, ZooKeeperSecurity(tls=tls))


async def test_certificate_of_the_broker_is_presented(tmp_path: Path) -> None:
    context = server_context(AUTHORITY.issue("zk"), tmp_path, requires_client=True)
    own = tmp_path / "own.pem"
    own.write_bytes(AUTHORITY.issue("broker").pem())
    tls = ZooKeeperTls(replace(trusting(tmp_path), own_file=str(own)))
    async with ScriptedZooKeeper().serve(context) as server, session(server, tls) as here:
        assert here.is_live()


async def test_versions_without_one_in_common_end_the_start_with_the_setting(tmp_path: Path) -> None:
    context = server_context(AUTHORITY.issue("zk"), tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with HandshakeServer(context) as server:
        tls = ZooKeeperTls(replace(trusting(tmp_path), versions=("TLSv1.3",)))
        assert "see zookeeper.ssl.enabled.protocols" in await refusal(server, ZooKeeperSecurity(tls=tls))


async def test_broker_without_tls_at_a_port_with_tls_ends_the_start_with_the_setting(tmp_path: Path) -> None:
    async with ScriptedZooKeeper().serve(server_context(AUTHORITY.issue("zk"), tmp_path)) as server:
        said = await refusal(server, ZooKeeperSecurity())
    assert f"{server.address} speaks TLS: set zookeeper.ssl.client.enable=true" in said


class PlainServer(asyncio.Protocol):
    """A server that closes a connection whose first bytes are no request, and responds to commands."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data == b"ruok":
            self.transport.write(b"ruok is not executed because it is not in the whitelist.\n")
        self.transport.close()


async def test_broker_with_tls_at_a_port_without_ends_the_start_with_the_setting(tmp_path: Path) -> None:
    listener = await asyncio.get_running_loop().create_server(PlainServer, "127.0.0.1", 0)
    server = ScriptedZooKeeper()
    server.port = listener.sockets[0].getsockname()[1]
    said = await refusal(server, ZooKeeperSecurity(tls=ZooKeeperTls(trusting(tmp_path))))
    listener.close()
    assert f"{server.address} does not speak TLS: name its secureClientPort in zookeeper.connect" in said


async def test_responses_in_one_record_of_tls_are_all_received_at_once(tmp_path: Path) -> None:
    """The kernel does not know of the second one: a client that waits for the kernel sees it seconds later."""
    context, waiting = server_context(AUTHORITY.issue("zk"), tmp_path), []

    def read(_: object, xid: int) -> None:
        waiting.append(xid)
        if len(waiting) == 2:
            server.connections[-1].send(*map(empty_znode, waiting))

    server = ScriptedZooKeeper()
    server.timeout_ms = 600_000  # So that no other response comes meanwhile.
    async with server.serve(context), session(server, ZooKeeperTls(trusting(tmp_path))) as here:
        server.read = read
        async with asyncio.timeout(SOON_SECONDS):
            assert all(await asyncio.gather(here.get("/a"), here.get("/b")))


async def test_replaced_trust_store_counts_for_the_next_connection(tmp_path: Path) -> None:
    other = make_authority("other")
    tls = ZooKeeperTls(trusting(tmp_path))
    async with ScriptedZooKeeper().serve(server_context(other.issue("zk"), tmp_path)) as server:
        await refusal(server, ZooKeeperSecurity(tls=tls))
        trusting(tmp_path, other)
        async with session(server, tls) as current:
            assert current.is_live()


async def test_replaced_trust_store_that_cannot_be_used_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ZooKeeperTls(trusting(tmp_path))
    (tmp_path / "ca.pem").write_text("half a file")
    async with ScriptedZooKeeper().serve(server_context(AUTHORITY.issue("zk"), tmp_path)) as server:
        for _ in range(2):
            async with session(server, tls) as current:
                assert current.is_live()
    said = [text for text in caplog.messages if "stay as they were" in text]
    assert len(said) == 1
    assert "zookeeper.ssl.truststore.location" in said[0]


def test_store_that_cannot_be_used_is_refused_with_the_name_of_its_setting(tmp_path: Path) -> None:
    encrypted, packed = tmp_path / "own.pem", tmp_path / "own.p12"
    encrypted.write_bytes(AUTHORITY.issue("broker").pem("sesame"))
    packed.write_bytes(AUTHORITY.issue("broker").pkcs12("sesame"))
    for settings, said in (
        (TlsSettings(trusted_file=str(tmp_path / "none")), "zookeeper.ssl.truststore.location"),
        (TlsSettings(trusted_file=str(packed)), "set zookeeper.ssl.truststore.password"),
        (TlsSettings(own_file=str(encrypted)), "set zookeeper.ssl.keystore.password"),
        (TlsSettings(own_file=str(packed)), "set zookeeper.ssl.keystore.password"),
        (TlsSettings(own_file=str(encrypted), own_password="sesam"), "zookeeper.ssl.keystore.password is wrong"),
        (TlsSettings(own_file=str(packed), own_password="sesam"), "zookeeper.ssl.keystore.password"),
        (TlsSettings(own_file=str(packed), own_password="sesame", own_type="PEM"), "zookeeper.ssl.keystore.type"),
        (TlsSettings(cipher_suites=("NONE",)), "zookeeper.ssl.cipher.suites"),
    ):
        with pytest.raises(ConfigError) as refused:
            ZooKeeperTls(settings)
        assert said in str(refused.value)
        assert "ssl.key.password" not in str(refused.value)
        assert "sesam" not in str(refused.value)
    for file in (encrypted, packed):
        ZooKeeperTls(TlsSettings(own_file=str(file), own_password="sesame"))
        assert os.path.exists(file)
