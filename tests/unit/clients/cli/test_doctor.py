"""What ``oncelog doctor`` reports beside addresses: the problems of ``oncelog health``, and listeners with TLS."""

import asyncio
import ssl

import pytest
from click.testing import CliRunner, Result

from oncelog.clients.cli.commands import commands
from oncelog.clients.cli.doctor import Examination, examine
from oncelog.clients.cli.seen_cluster import see_cluster
from oncelog.clients.cli.session import NO_BROKER, Session
from oncelog.clients.connection import Address
from oncelog.clients.security_config import SecurityConfig
from oncelog.clients.tls import load_key_material
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.tls.stores import read_key_store
from tests.certificates import Identity, make_authority
from tests.unit.clients.scripted_broker import ScriptedBroker, metadata

SECONDS = 30.0
AWAY = 3


def describe_configs(request: Message) -> Message:
    """Every resource has a replication factor of three for its offsets."""
    assert isinstance(request, DescribeConfigsRequest)
    factor = DescribeConfigsResourceResult(name="offsets.topic.replication.factor", value="3")
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(resource_type=each.resource_type, resource_name=each.resource_name, configs=[factor])
            for each in request.resources
        ]
    )


async def examined_and_seen(broker: ScriptedBroker) -> tuple[Examination, list[str]]:
    """Return what the doctor finds, and the problems of ``oncelog health``, of a cluster with this broker."""
    session = Session(bootstrap=[broker.address], timeout_seconds=SECONDS, output="json")
    async with session.cluster() as cluster:
        seen = await see_cluster(cluster)
    return await examine(session), seen.problems


def test_doctor_of_partitions_without_a_leader_reports_the_problems_of_health() -> None:
    async def scenario() -> tuple[Examination, list[str]]:
        broker = ScriptedBroker({DescribeConfigsRequest: describe_configs})
        await broker.start()
        broker.script[MetadataRequest] = metadata({1: broker.address}, {"a": [AWAY], "b": [1]})
        try:
            return await examined_and_seen(broker)
        finally:
            broker.stop()

    examination, problems = asyncio.run(scenario())
    assert [finding.message for finding in examination.findings] == problems
    assert any(problem.startswith("1 partition without a leader") for problem in problems)
    assert any(problem.startswith("__consumer_offsets cannot be created") for problem in problems)


def test_doctor_of_a_cluster_without_controller_reports_that_once() -> None:
    async def scenario() -> tuple[Examination, list[str]]:
        broker = ScriptedBroker({})
        await broker.start()
        broker.script[MetadataRequest] = metadata({1: broker.address}, {}, controller_id=-1)
        try:
            return await examined_and_seen(broker)
        finally:
            broker.stop()

    examination, problems = asyncio.run(scenario())
    assert [problem.partition(":")[0] for problem in problems] == ["no controller is known"]
    assert [each.message.partition(":")[0] for each in examination.findings] == ["the cluster has no controller"]


ROOT = make_authority("root")
BROKER = ROOT.issue("broker")
TRUSTED = SecurityConfig(security_protocol="SSL", ssl_truststore_certificates=ROOT.certificate_pem.decode())


def context_of(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_material(context, read_key_store(identity.pem()))
    return context


async def examined(
    context: ssl.SSLContext | None, security: SecurityConfig, *, advertises: str | None = None
) -> Examination:
    """What the doctor finds about a broker that listens with this context and advertises this host."""
    broker = ScriptedBroker({DescribeConfigsRequest: describe_configs})
    address = await broker.start(context)
    named = Address(advertises or address.host, address.port)
    broker.script[MetadataRequest] = metadata({1: named}, {})
    try:
        return await examine(Session(bootstrap=[address], timeout_seconds=SECONDS, output="json", security=security))
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("identity", "security", "failure", "remedy"),
    [
        (None, TRUSTED, "its listener speaks no TLS, and security.protocol is SSL", "security.protocol to PLAINTEXT"),
        (BROKER, SecurityConfig(), "its listener speaks TLS, and security.protocol is PLAINTEXT", "=SSL or SASL_SSL"),
        (
            make_authority("other").issue("broker"),
            TRUSTED,
            "its certificate is not accepted: unable to get local issuer certificate",
            "set ssl.truststore.location",
        ),
        (
            ROOT.issue("broker", days=(-9, -1)),
            TRUSTED,
            "its certificate is not accepted: certificate has expired",
            "renew the certificate",
        ),
        (ROOT.issue("broker", "b.example"), TRUSTED, "its certificate is not accepted: IP address mismatch", "name"),
    ],
)
def test_doctor_of_a_listener_that_is_not_used_as_it_is_says_why_and_what_to_set(
    identity: Identity | None, security: SecurityConfig, failure: str, remedy: str
) -> None:
    context = None if identity is None else context_of(identity)
    (visit,) = asyncio.run(examined(context, security)).bootstrap
    assert str(visit.failure).startswith(failure)
    assert remedy in str(visit.remedy)


def test_doctor_of_an_advertised_name_that_the_certificate_lacks_reports_both_remedies() -> None:
    (finding,) = [
        each
        for each in asyncio.run(examined(context_of(BROKER), TRUSTED, advertises="localhost")).findings
        if each.broker_id == 1
    ]
    assert "its certificate is not accepted: Hostname mismatch" in finding.message
    assert "it responds at 127.0.0.1:" in finding.message
    assert str(finding.advice).startswith("or connect to a name that the certificate has")


def test_doctor_command_prints_the_remedy_and_not_that_of_a_stopped_broker() -> None:
    async def scenario() -> Result:
        broker = ScriptedBroker({})
        address = await broker.start(context_of(BROKER))
        broker.script[MetadataRequest] = metadata({1: address}, {})
        try:
            return await asyncio.to_thread(CliRunner().invoke, commands, ["doctor", "-b", str(address)])
        finally:
            broker.stop()

    result = asyncio.run(scenario())
    assert result.exit_code == NO_BROKER
    assert "its listener speaks TLS, and security.protocol is PLAINTEXT" in result.output
    assert "  set security.protocol=SSL or SASL_SSL" in result.output
    assert "oncelog serve" not in result.output
