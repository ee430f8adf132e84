"""By which ids a task knows the topics that it writes to, and whether they are one and the same for a whole batch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.producer import ProducerConfig
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import ZERO_UUID
from oncelog.spark_connector.sink.batch_producer import BatchProducer
from oncelog.spark_connector.sink.commit.sink_errors import TopicReplaced
from oncelog.spark_connector.sink.commit.written_topics import names_of, replaced_topics
from tests.unit.clients.scripted_broker import ScriptedBroker, ScriptedResponse, metadata

FIRST, SECOND = b"1" * 16, b"2" * 16


@pytest.mark.parametrize(
    ("written", "now", "replaced"),
    [
        ([(("t", FIRST),), (("t", FIRST),)], {"t": FIRST}, []),
        ([(("t", FIRST),), (("t", SECOND),)], {"t": SECOND}, ["t"]),
        ([(("t", FIRST), ("u", FIRST))], {"t": FIRST, "u": SECOND}, ["u"]),
        ([(("t", FIRST),), (), (("u", SECOND),)], {"t": FIRST, "u": SECOND}, []),
        ([(("t", FIRST),)], {}, []),
        ([(), ()], {}, []),
    ],
)
def test_topic_with_two_ids_in_one_batch_is_replaced(
    written: list[tuple[tuple[str, bytes], ...]], now: dict[str, bytes], replaced: list[str]
) -> None:
    assert replaced_topics(written, now) == replaced
    assert names_of(written) >= set(replaced)


class Topic:
    """The topic ``t`` of a scripted broker, in the metadata of which it has the id that it has now."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic_id = FIRST

    def producer(self) -> BatchProducer:
        """A task's; all are in one process."""
        return BatchProducer(self.cluster, ProducerConfig(bootstrap="unused"), lambda: 0)


@asynccontextmanager
async def topic() -> AsyncIterator[Topic]:
    broker = ScriptedBroker({})
    address = await broker.start()
    cluster = Cluster([address], rng=Random(1), operation_seconds=5)
    scripted = Topic(cluster)

    def tell(_: object) -> ScriptedResponse:
        response = metadata({1: address}, {"t": [1, 1]})
        response.topics[0].topic_id = scripted.topic_id
        return response

    broker.script[MetadataRequest] = tell
    try:
        yield scripted
    finally:
        await cluster.close()
        broker.stop()


async def test_task_reports_the_current_id_of_a_topic_and_not_a_cached_one() -> None:
    async with topic() as scripted:
        for scripted.topic_id in (FIRST, SECOND):
            producer = scripted.producer()
            assert await producer.partition_counts(["t"]) == {"t": 2}
            assert producer.written_topics() == (("t", scripted.topic_id),)


async def test_task_whose_topic_is_replaced_while_it_writes_fails() -> None:
    async with topic() as scripted:
        producer = scripted.producer()
        await producer.partition_counts(["t"])
        scripted.topic_id = SECOND
        await scripted.cluster.refresh(["t"])
        assert await producer.partition_counts(["t"]) == {"t": 2}
        with pytest.raises(TopicReplaced, match="t was deleted and created again"):
            producer.written_topics()


async def test_task_reports_no_topic_id_if_brokers_have_none() -> None:
    async with topic() as scripted:
        scripted.topic_id = ZERO_UUID
        producer = scripted.producer()
        await producer.partition_counts(["t"])
        assert producer.written_topics() == ()
