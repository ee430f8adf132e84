"""Connections that are secured: who is trusted, and what is said when somebody is not."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address, connect
from oncelog.clients.errors import TlsFailed, Unreachable
from oncelog.clients.tls import TlsSettings
from oncelog.protocol.messages.metadata import MetadataRequest
from tests.certificates import Certificate, make_certificate
from tests.unit.clients.scripted_broker import ScriptedBroker, metadata, requested_only

pytestmark = pytest.mark.real_loop


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "broker")


@asynccontextmanager
async def broker_of(certificate: Certificate, *, trusts: Certificate | None = None) -> AsyncIterator[Address]:
    """A broker behind TLS; it asks who is there if it ``trusts`` somebody."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.certificate, certificate.key)
    if trusts is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trusts.certificate)
    broker = ScriptedBroker({})
    address = await broker.start(context)
    broker.script[MetadataRequest] = requested_only(metadata({1: address}, {"orders": [1]}))
    yield address
    broker.stop()


@pytest.mark.parametrize("is_text", [False, True])
async def test_tls_with_a_trusted_broker_connects(certificate: Certificate, is_text: bool) -> None:
    trusted = (
        TlsSettings(trusted_text=certificate.certificate.read_text())
        if is_text
        else TlsSettings(trusted_file=str(certificate.certificate))
    )
    async with (
        broker_of(certificate) as address,
        Cluster([address], rng=Random(1), tls=trusted.make_context()) as cluster,
    ):
        assert (await cluster.topics(["orders"])).keys() == {"orders"}


async def test_tls_with_an_unknown_authority_raises(certificate: Certificate) -> None:
    async with (
        broker_of(certificate) as address,
        Cluster([address], rng=Random(1), tls=TlsSettings().make_context()) as cluster,
    ):
        with pytest.raises(TlsFailed, match="certificate is not accepted: self-signed") as raised:
            await cluster.topics(["orders"])
        assert raised.value.is_fatal, "to ask again would not help"


async def test_tls_certificate_for_another_name_raises(tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other", "DNS:other.example")
    async with broker_of(other) as address:
        strict = TlsSettings(trusted_file=str(other.certificate))
        with pytest.raises(TlsFailed, match=r"not valid for '127\.0\.0\.1'"):
            await connect(address, tls=strict.make_context())
        lenient = TlsSettings(trusted_file=str(other.certificate), checks_host=False)
        (await connect(address, tls=lenient.make_context())).close()


async def test_tls_client_without_a_required_certificate_raises(certificate: Certificate, tmp_path: Path) -> None:
    own = make_certificate(tmp_path, "client")
    async with broker_of(certificate, trusts=own) as address:
        named = TlsSettings(trusted_file=str(certificate.certificate), own_file=str(own.both))
        (await connect(address, tls=named.make_context())).close()
        nameless = TlsSettings(trusted_file=str(certificate.certificate))
        with pytest.raises((TlsFailed, Unreachable)):
            await connect(address, tls=nameless.make_context())


async def test_tls_on_one_side_only_raises(certificate: Certificate) -> None:
    plain = ScriptedBroker({})
    address = await plain.start()
    with pytest.raises((TlsFailed, Unreachable)):
        await connect(address, connect_seconds=5, tls=TlsSettings().make_context())
    plain.stop()
    async with broker_of(certificate) as secured:
        with pytest.raises(Unreachable):
            await connect(secured, connect_seconds=5)
