"""Connections that are secured: who is trusted, what a client presents, and what is said when either is refused."""

import asyncio
import os
import pickle
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from oncelog import AdminConfig
from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import BadResponse, BrokerSilent, ClientError, ConnectionLost, TlsFailed, Unreachable
from oncelog.clients.setting_error import SettingError
from oncelog.clients.tls import TlsSettings, load_key_material, load_trusted
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.tls.stores import KeyMaterial, StoreError, read_key_store
from tests.certificates import Identity, make_authority, make_certificate, trust_store_of_keytool, without_bytes
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata, requested_only

pytestmark = pytest.mark.real_loop

SECRET = "wonderland"
ROOT = make_authority("root")
OTHER_ROOT = make_authority("other root")
BROKER = ROOT.issue_authority("middle").issue("broker")
OWN = ROOT.issue("own")
TRUSTED = TlsSettings(trusted_text=ROOT.certificate_pem.decode())
LATEST = ssl.TLSVersion.TLSv1_3


def context_of(identity: Identity, *, requires: Identity | None = None, latest: ssl.TLSVersion = LATEST) -> Any:
    """The context of a broker, which requires certificates of an authority if that is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = latest
    load_key_material(context, read_key_store(identity.pem()))
    if requires is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        load_trusted(context, [requires.certificate_pem])
    return context


@asynccontextmanager
async def broker_with(context: ssl.SSLContext | None) -> AsyncIterator[Address]:
    broker = ScriptedBroker({})
    address = await broker.start(context)
    broker.script[MetadataRequest] = requested_only(metadata({1: address}, {"orders": [1]}))
    yield address
    broker.stop()


async def connected(address: Address, tls: TlsSettings | None, seconds: float = 5) -> None:
    context = None if tls is None else tls.make_context()
    (await connect(address, connect_seconds=seconds, tls=context)).close()


def settings(**given: Any) -> TlsSettings:
    found = AdminConfig(bootstrap="b:1", security_protocol="SSL", **given).tls
    assert found is not None
    return found


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "password"),
    [
        ("ca.pem", ROOT.certificate_pem, None),
        ("ca.p12", trust_store_of_keytool(OTHER_ROOT, ROOT, password=SECRET), SECRET),
        ("leaf.pem", BROKER.certificate_pem, None),
    ],
    ids=without_bytes,
)
async def test_tls_with_a_trust_store_in_a_file_connects(
    tmp_path: Path, name: str, content: bytes, password: str | None
) -> None:
    file = written(tmp_path / name, content)
    tls = settings(ssl_truststore_location=file, ssl_truststore_password=password)
    async with (
        broker_with(context_of(BROKER)) as address,
        Cluster([address], rng=Random(1), tls=tls.make_context()) as cluster,
    ):
        assert (await cluster.topics(["orders"])).keys() == {"orders"}


async def test_tls_with_a_trust_store_in_text_connects() -> None:
    async with broker_with(context_of(BROKER)) as address:
        await connected(address, settings(ssl_truststore_certificates=ROOT.certificate_pem.decode()))


@pytest.mark.parametrize(
    ("content", "passwords"),
    [
        (OWN.pem(), {}),
        (OWN.pem(SECRET), {"ssl_key_password": SECRET}),
        (OWN.pkcs12(SECRET), {"ssl_keystore_password": SECRET, "ssl_keystore_type": "JKS"}),
    ],
    ids=without_bytes,
)
async def test_tls_with_a_key_store_in_a_file_is_accepted_by_a_broker_that_requires_one(
    tmp_path: Path, content: bytes, passwords: dict[str, str]
) -> None:
    file = written(tmp_path / "own", content)
    async with broker_with(context_of(BROKER, requires=ROOT)) as address:
        trusted = ROOT.certificate_pem.decode()
        await connected(address, settings(ssl_truststore_certificates=trusted, ssl_keystore_location=file, **passwords))


async def test_tls_with_a_key_store_in_text_is_accepted_by_a_broker_that_requires_one() -> None:
    async with broker_with(context_of(BROKER, requires=ROOT)) as address:
        own = settings(
            ssl_truststore_certificates=ROOT.certificate_pem.decode(),
            ssl_keystore_key=OWN.key_pem(SECRET).decode(),
            ssl_keystore_certificate_chain=OWN.chain_pem.decode(),
            ssl_key_password=SECRET,
        )
        await connected(address, own)


async def test_tls_with_the_certificates_of_the_system_raises_for_an_unknown_authority(tmp_path: Path) -> None:
    alone = make_certificate(tmp_path, "alone")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(alone.certificate, alone.key)
    async with (
        broker_with(context) as address,
        Cluster([address], rng=Random(1), tls=TlsSettings().make_context()) as cluster,
    ):
        with pytest.raises(TlsFailed, match="certificate is not accepted: self-signed") as raised:
            await cluster.topics(["orders"])
        assert raised.value.is_fatal, "to ask again would not help"
        assert "set ssl.truststore.location" in str(raised.value)


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (OTHER_ROOT.issue("broker"), "unable to get local issuer certificate: set ssl.truststore.location"),
        (ROOT.issue("old", days=(-9, -1)), "certificate has expired: renew the certificate"),
        (ROOT.issue("early", days=(1, 9)), "certificate is not yet valid: renew the certificate"),
        (ROOT.issue("named", "other.example"), r"not valid for '127\.0\.0\.1'.*: connect to a name that"),
        (ROOT.issue("numbered", "10.0.0.1"), r"not valid for '127\.0\.0\.1'.*: connect to a name that"),
    ],
)
async def test_tls_certificate_that_is_not_accepted_raises_with_the_remedy(identity: Identity, why: str) -> None:
    async with broker_with(context_of(identity)) as address:
        with pytest.raises(TlsFailed, match=f"^{address}: its certificate is not accepted: .*{why}") as raised:
            await connected(address, TRUSTED)
        assert str(raised.value).endswith(raised.value.advice)
        again = pickle.loads(pickle.dumps(raised.value))
        assert (str(again), again.advice) == (str(raised.value), raised.value.advice)


@pytest.mark.parametrize("algorithm", ["", "none"])
async def test_tls_without_a_check_of_the_host_accepts_another_name(algorithm: Any) -> None:
    async with broker_with(context_of(ROOT.issue("named", "other.example"))) as address:
        trusted = ROOT.certificate_pem.decode()
        await connected(
            address,
            settings(ssl_truststore_certificates=trusted, ssl_endpoint_identification_algorithm=algorithm),
        )


@pytest.mark.parametrize("latest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("own", [None, OTHER_ROOT.issue("unknown"), ROOT.issue("old", days=(-9, -1))])
async def test_tls_client_without_a_certificate_that_the_broker_accepts_raises(
    latest: ssl.TLSVersion, own: Identity | None
) -> None:
    async with broker_with(context_of(BROKER, requires=ROOT, latest=latest)) as address:
        given = {} if own is None else {"own_key": own.key_pem().decode(), "own_certificates": own.chain_pem.decode()}
        tls = TlsSettings(trusted_text=TRUSTED.trusted_text, **given)
        with pytest.raises((TlsFailed, Unreachable), match=r"certificate.*ssl\.keystore\.location"):
            await connected(address, tls)


async def test_connection_with_tls_is_closed_with_its_reason() -> None:
    async with broker_with(context_of(BROKER)) as address:
        for end, why in ((Connection.close, "was closed"), (Connection.abort, "was given up")):
            connection = await connect(address, tls=TRUSTED.make_context())
            end(connection)
            end(connection)  # asyncio's transport forgets its TLS then.
            async with asyncio.timeout(5):
                assert why in str(await connection.closed)


async def test_connection_with_tls_that_is_refused_without_a_login_names_the_protocol() -> None:
    broker = ScriptedBroker({MetadataRequest: Reaction.CLOSE})
    address = await broker.start(context_of(BROKER))
    connection = await connect(address, tls=TRUSTED.make_context())
    with pytest.raises(ConnectionLost, match=r"need authentication \(security\.protocol=SASL_SSL\)"):
        await connection.send(MetadataRequest(), MetadataResponse)
    broker.stop()


async def test_tls_without_a_common_version_raises() -> None:
    async with broker_with(context_of(BROKER, latest=ssl.TLSVersion.TLSv1_2)) as address:
        trusted = ROOT.certificate_pem.decode()
        tls = settings(ssl_truststore_certificates=trusted, ssl_enabled_protocols=("TLSv1.3",))
        with pytest.raises((TlsFailed, Unreachable), match=r"version of TLS that both sides speak.*ssl\.enabled"):
            await connected(address, tls)


class PlainServer(asyncio.Protocol):
    """Responds to the first bytes, or does not, and then closes the connection if it is informed to."""

    def __init__(self, response: bytes, *, closes: bool) -> None:
        self._response, self._closes = response, closes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._response)
        if self._closes:
            self._transport.close()


@pytest.mark.parametrize(
    ("response", "closes", "kind", "why"),
    [
        (b"", True, Unreachable, "closed the connection during the TLS handshake: is this a"),
        (
            b"",
            False,
            BrokerSilent,
            "accepts connections, but does not respond in TLS within 0.2 s: connect to the port of",
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            True,
            TlsFailed,
            "it does not speak TLS .*: connect to the port of a listener with TLS, or set",
        ),
    ],
)
async def test_tls_with_a_listener_without_tls_raises_with_the_remedy(
    response: bytes, closes: bool, kind: type[ClientError], why: str
) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PlainServer(response, closes=closes), "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(kind, match=f"^{address}: {why}.*security.protocol"):
        await connected(address, TRUSTED, 0.2)
    server.close()


async def test_connection_without_tls_to_a_listener_with_tls_raises_with_the_remedy() -> None:
    async with broker_with(context_of(BROKER)) as address:
        with pytest.raises((BadResponse, Unreachable), match=r"TLS.*set security\.protocol=SSL or SASL_SSL"):
            await connected(address, None)


@pytest.mark.parametrize(
    ("name", "content", "given", "why"),
    [
        ("absent", None, {}, "cannot be read: No such file or directory$"),
        ("ca.jks", b"\xfe\xed\xfe\xed", {}, "is a key store of Java.*keytool -importkeystore"),
        ("ca.p12", trust_store_of_keytool(ROOT, password=SECRET), {}, "is PKCS#12.* set ssl_truststore_password$"),
        (
            "ca.p12",
            trust_store_of_keytool(ROOT, password=SECRET),
            {"trusted_password": "x"},
            "is PKCS#12.* password .* is wrong",
        ),
        ("ca.pem", b"hello", {}, "is no PEM and no PKCS#12$"),
    ],
    ids=without_bytes,
)
def test_trust_store_that_cannot_be_used_is_refused_by_the_name_of_its_setting(
    tmp_path: Path, name: str, content: bytes | None, given: dict[str, str], why: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingError, match=f"^ssl_truststore_location '{path}' {why}") as refused:
        TlsSettings(trusted_file=str(path), **given).make_context()
    assert SECRET not in str(refused.value)


def test_store_of_another_type_than_set_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "ca", ROOT.certificate_pem)
    with pytest.raises(SettingError, match=r"^ssl_truststore_type is PKCS12, but the file is PEM: leave it out$"):
        TlsSettings(trusted_file=file, trusted_type="PKCS12").make_context()
    own = written(tmp_path / "own", OWN.pkcs12(SECRET))
    with pytest.raises(SettingError, match=r"^ssl_keystore_type is PEM, but the file is PKCS12"):
        TlsSettings(own_file=own, own_store_password=SECRET, own_type="PEM").make_context()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"own_key": OWN.key_pem(SECRET).decode()}, "^ssl_keystore_key has an encrypted .*: set ssl_key_password$"),
        ({"own_key": OWN.key_pem().decode()}, "^ssl_keystore_key has no certificate"),
        ({"trusted_text": "x"}, "^ssl_truststore_certificates is no PEM"),
        ({"cipher_suites": ("AES128-SHA", "NOPE")}, "^ssl_cipher_suites has NOPE, which OpenSSL does not know"),
    ],
)
def test_settings_that_openssl_cannot_use_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingError, match=why):
        TlsSettings(**given).make_context()


def test_context_speaks_the_versions_and_offers_the_suites_that_are_set() -> None:
    usual = TRUSTED.make_context()
    assert (usual.minimum_version, usual.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert usual.check_hostname
    assert usual.verify_mode is ssl.CERT_REQUIRED
    chosen = settings(
        ssl_enabled_protocols=("TLSv1.2",),
        ssl_cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES256-GCM-SHA384"),
    ).make_context()
    assert (chosen.minimum_version, chosen.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    offered = {each["name"] for each in chosen.get_ciphers() if each["protocol"] == "TLSv1.2"}
    assert offered == {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"}


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_key_is_in_no_file_after_it_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_memory_files: bool
) -> None:
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(os.listdir("/proc/self/fd"))
    load_key_material(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), read_key_store(OWN.pem()))
    mixed = KeyMaterial(private_key=OWN.key_pem(), certificates=(BROKER.certificate_pem,))
    with pytest.raises(StoreError, match="OpenSSL does not accept: key values mismatch"):
        load_key_material(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), mixed)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_settings_can_be_pickled_and_their_text_has_no_secret() -> None:
    given = TlsSettings(
        own_file="own.p12",
        own_key="KEY" + SECRET,
        own_password="k" + SECRET,
        own_store_password="s" + SECRET,
        trusted_password="t" + SECRET,
    )
    assert pickle.loads(pickle.dumps(given)) == given
    assert hash(given)
    assert SECRET not in repr(given)
