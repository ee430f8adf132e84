"""The rows of a described topic: eligible leader replicas, and the brokers that its partitions wait for."""

import pytest

from oncelog.clients.admin.topic_pages import PagedPartitionDescription, describe_eligible
from oncelog.clients.admin.topics import PartitionDescription, TopicDescription
from oncelog.clients.cli.election_settings import ElectionSettings
from oncelog.clients.cli.topic_description import columns, partition_rows, problems
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of


def described(
    index: int, leader: int | None, isr: tuple[int, ...], elr: tuple[int, ...] = (), last: tuple[int, ...] = ()
) -> PagedPartitionDescription:
    return PagedPartitionDescription(
        partition=index,
        leader=leader,
        leader_epoch=4,
        replicas=(1, 2, 3),
        isr=isr,
        offline=(),
        eligible_leaders=elr,
        last_known_eligible_leaders=last,
    )


def topic(*partitions: PartitionDescription) -> TopicDescription:
    return TopicDescription(name="t", topic_id=None, is_internal=False, partitions=partitions)


PLAIN = PartitionDescription(partition=0, leader=None, leader_epoch=4, replicas=(1, 2), isr=(2,), offline=(2,))


def test_partition_without_leader_waits_for_the_absent_brokers_of_isr_and_elr() -> None:
    orders = topic(described(0, None, (2,), (1, 3), (2,)), described(1, 1, (1,), (2, 3)), described(2, None, (3,)))
    rows = partition_rows(orders, {1}, {})
    assert [row["waiting_for"] for row in rows] == [(2, 3), (), (3,)]
    assert [row["elr"] for row in rows] == [(1, 3), (2, 3), ()]
    assert [row["last_known_elr"] for row in rows] == [(), (), ()]
    first, second = problems(orders, {1})
    assert first.startswith(
        "1 partition waits for broker 2 or 3, which may alone have all acknowledged records (t-0)\n"
    )
    assert "unclean.leader.election.enable" in first
    assert second.startswith("1 partition waits for broker 3,")


def test_partition_of_which_the_controller_decides_later_gets_no_command_to_elect_another() -> None:
    """The session of the leader has not ended. At level 1, the older setting would be the wrong one, too."""
    (problem,) = problems(topic(described(0, None, (2,))), {1}, ElectionSettings(compares_logs=True))
    assert "the controller waits for the end of its ZooKeeper session" in problem
    assert "start broker 2" in problem
    assert "not to wait" not in problem


def test_partition_whose_only_replica_is_away_gets_no_command_to_elect_another() -> None:
    lone = PartitionDescription(partition=0, leader=None, leader_epoch=4, replicas=(2,), isr=(2,), offline=(2,))
    (problem,) = problems(topic(lone), {1})
    assert problem.endswith("  not to wait: there is no replica on another broker")


def test_partition_without_leader_whose_members_are_all_there_waits_for_none() -> None:
    orders = topic(described(0, None, (2,), (3,)))
    assert problems(orders, {1, 2, 3}) == []
    assert partition_rows(orders, {1, 2, 3}, {})[0]["waiting_for"] == ()


def test_partition_of_a_broker_that_names_no_eligible_replicas_has_none_and_waits_for_its_isr() -> None:
    (row,) = partition_rows(topic(PLAIN), {1}, {0: {"begin": 0, "end": 7}})
    assert (row["elr"], row["last_known_elr"], row["waiting_for"]) == (None, None, (2,))
    assert (row["begin"], row["end"]) == (0, 7)
    assert problems(topic(PLAIN), {1})[0].startswith("1 partition waits for broker 2,")


def test_last_leader_that_is_still_eligible_is_not_shown_as_known_last() -> None:
    (row,) = partition_rows(topic(described(0, None, (), (1, 3), (3, 2))), {1}, {})
    assert (row["isr"], row["elr"], row["last_known_elr"]) == ((), (1, 3), (2,))


@pytest.mark.parametrize(("last", "shown"), [((), []), ((1,), ["last_known_elr"])])
def test_columns_show_the_last_known_where_there_is_any(last: tuple[int, ...], shown: list[str]) -> None:
    rows = partition_rows(topic(described(0, None, (2,), (3,), last)), {1}, {})
    usual = ["partition", "leader", "epoch", "replicas", "isr", "elr"]
    assert columns(rows, offsets=False) == usual + shown
    assert columns(rows, offsets=True) == [*usual, *shown, "begin", "end"]


def page(error: ErrorCode = ErrorCode.NONE) -> DescribeTopicPartitionsResponse:
    partition = DescribeTopicPartitionsResponsePartition(
        partition_index=0, leader_id=1, isr_nodes=[1], eligible_leader_replicas=[2], last_known_elr=[3]
    )
    partitions = [] if error else [partition]
    named = DescribeTopicPartitionsResponseTopic(name="t", error_code=error, partitions=partitions)
    return DescribeTopicPartitionsResponse(topics=[named])


@in_virtual_time
async def test_eligible_replicas_are_described_where_the_broker_knows_them() -> None:
    broker = ScriptedBroker({DescribeTopicPartitionsRequest: page()})
    async with cluster_of(broker, leaders={"t": [1]}) as cluster:
        found = await describe_eligible(cluster, "t")
        assert isinstance(found, TopicDescription)
        (partition,) = found.partitions
        assert isinstance(partition, PagedPartitionDescription)
        assert (partition.eligible_leaders, partition.last_known_eligible_leaders) == ((2,), (3,))


@pytest.mark.parametrize("knows_request", [True, False])
def test_topic_is_described_without_eligible_replicas_where_the_broker_has_none(knows_request: bool) -> None:
    @in_virtual_time
    async def play() -> None:
        unknown = page(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        broker = ScriptedBroker({DescribeTopicPartitionsRequest: unknown} if knows_request else {})
        async with cluster_of(broker, leaders={"t": [1]}) as cluster:
            found = await describe_eligible(cluster, "t")
            assert isinstance(found, TopicDescription)
            assert [type(partition) for partition in found.partitions] == [PartitionDescription]

    play()


@in_virtual_time
async def test_refused_topic_is_not_described() -> None:
    broker = ScriptedBroker({DescribeTopicPartitionsRequest: page()})
    async with cluster_of(broker, leaders={}) as cluster:
        assert await describe_eligible(cluster, "no/pe") == Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert not broker.seen(DescribeTopicPartitionsRequest)
