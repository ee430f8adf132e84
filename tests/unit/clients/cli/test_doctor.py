"""What ``oncelog doctor`` reports beside the addresses of brokers: the problems of ``oncelog health``."""

import asyncio

from oncelog.clients.cli.doctor import Examination, examine
from oncelog.clients.cli.seen_cluster import see_cluster
from oncelog.clients.cli.session import Session
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
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
