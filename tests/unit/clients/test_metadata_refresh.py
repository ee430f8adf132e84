"""Topics that are not there: the log names each once, before a broker gets leave to create it. In virtual time."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.retry import Backoff
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker, ScriptedResponse, metadata, requested_only
from tests.unit.clients.scripted_cluster import cluster_of

WARNING = "topic {} does not exist; brokers may create it (allow_auto_create_topics)"


class CreatingBroker(ScriptedBroker):
    """Creates the topics that a metadata request asks for and that are not there, if the request allows it."""

    def __init__(self, *topics: str) -> None:
        super().__init__({MetadataRequest: self._tell})
        self.topics = set(topics)

    def _tell(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, MetadataRequest)
        if request.allow_auto_topic_creation:
            self.topics |= {topic.name or "" for topic in request.topics or ()}
        return requested_only(metadata({1: self.address}, {name: [1] for name in self.topics}))(request)

    def requested(self) -> list[tuple[list[str | None], bool]]:
        """The topics of each request, and whether it allowed to create them."""
        requests = [each for each in self.requests if isinstance(each, MetadataRequest) and each.topics]
        return [([topic.name for topic in each.topics or ()], each.allow_auto_topic_creation) for each in requests]


async def refreshed(cluster: Cluster, topics: Sequence[str], *, creates: bool) -> None:
    """Ask several times."""
    refresh = MetadataRefresh(
        cluster, Backoff(rng=Random(1)), lambda: topics, lambda _: None, max_age_seconds=1, creates_topics=creates
    )
    refresh.request()
    running = asyncio.get_running_loop().create_task(refresh.run())
    await asyncio.sleep(5)
    running.cancel()
    await asyncio.wait([running])


def test_missing_topic_is_warned_of_once_and_then_created(caplog: pytest.LogCaptureFixture) -> None:
    broker = CreatingBroker("orders")

    @in_virtual_time
    async def play() -> None:
        async with cluster_of(broker) as cluster:
            await refreshed(cluster, ["ordrs", "orders"], creates=True)

    play()
    assert [record.getMessage() for record in caplog.records] == [WARNING.format("ordrs")]
    assert [allowed for _, allowed in broker.requested()[:3]] == [False, True, False]
    assert broker.topics == {"ordrs", "orders"}


def test_topic_that_exists_is_not_warned_of_nor_allowed_to_be_created(caplog: pytest.LogCaptureFixture) -> None:
    broker = CreatingBroker("orders")

    @in_virtual_time
    async def play() -> None:
        async with cluster_of(broker) as cluster:
            await refreshed(cluster, ["orders"], creates=True)

    play()
    assert not caplog.records
    assert not any(allowed for _, allowed in broker.requested())


def test_missing_topic_that_may_not_be_created_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    broker = CreatingBroker()

    @in_virtual_time
    async def play() -> None:
        async with cluster_of(broker) as cluster:
            await refreshed(cluster, ["ordrs"], creates=False)

    play()
    assert [record.getMessage() for record in caplog.records] == ["topic ordrs does not exist"]
    assert len(broker.requested()) > 3
    assert not broker.topics


def test_topic_that_was_known_and_is_gone_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that has only just started knows no topics."""
    broker = CreatingBroker("orders")

    @in_virtual_time
    async def play() -> None:
        async with cluster_of(broker) as cluster:
            await cluster.refresh(["orders"])
            broker.topics.clear()
            await refreshed(cluster, ["orders"], creates=False)

    play()
    assert not caplog.records
