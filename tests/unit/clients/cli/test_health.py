"""How ``oncelog health`` looks at a cluster of which one broker does not respond."""

import asyncio

from oncelog.clients.cli.seen_cluster import see_cluster
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata
from tests.unit.clients.scripted_cluster import cluster_of

SOON_SECONDS = 7.0
FAILOVER_SECONDS = 3.0


@in_virtual_time
async def test_health_with_a_paused_broker_is_that_of_soon_and_of_afterwards() -> None:
    """Leadership moves while the paused broker is visited; it is then not shown as leader any more."""
    alive, paused = ScriptedBroker({}), ScriptedBroker({}, node_id=2)
    paused.api_versions = Reaction.SILENCE
    loop = asyncio.get_running_loop()
    began = loop.time()

    def describe(request: Message) -> Message:
        leader = 2 if loop.time() < began + FAILOVER_SECONDS else 1
        return metadata({1: alive.address, 2: paused.address}, {"t": [leader]})

    alive.script[MetadataRequest] = describe
    async with cluster_of(alive, paused) as cluster:
        health = await see_cluster(cluster)
        assert loop.time() - began < SOON_SECONDS
    assert [row["reached"] for row in health.brokers] == [True, False]
    (problem,) = [each for each in health.problems if each.startswith("broker 2 is not reached")]
    assert "accepts connections, but does not respond within 5 s" in problem
    assert problem.endswith(
        "if it is paused, resume it (of `oncelog cluster`: `oncelog cluster resume 2`), and see its output if not: "
        "brokers count as alive until their ZooKeeper session ends, and this one still does"
    )
