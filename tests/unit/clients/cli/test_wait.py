"""What ``oncelog wait`` counts: brokers that respond, not those that are listed."""

import asyncio

import pytest

from oncelog.clients.cli.health import judge, look_for
from oncelog.protocol.messages.metadata import MetadataRequest
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata
from tests.unit.clients.scripted_cluster import cluster_of

SECONDS = 10.0


@in_virtual_time
async def test_wait_counts_only_listed_brokers_that_respond() -> None:
    """Broker 2 is paused with a connection to accept, and broker 3 has ended; the metadata lists both."""
    alive, paused, ended = (ScriptedBroker({}, node_id=broker_id) for broker_id in (1, 2, 3))
    paused.api_versions = Reaction.SILENCE
    async with cluster_of(alive, paused, ended) as cluster:
        ended.stop()
        began = asyncio.get_running_loop().time()
        found = await look_for(cluster, 3, SECONDS)
        assert asyncio.get_running_loop().time() - began < SECONDS
        assert found is not None
        assert (found.is_enough, found.responding) == (False, 1)
        assert found.missing == "1 of 3 brokers; no response from 2, 3, listed as members of the cluster"
        enough = await look_for(cluster, 1, SECONDS)
        assert enough is not None
        assert (enough.is_enough, enough.responding, enough.controller_id) == (True, 1, 1)


@in_virtual_time
async def test_wait_counts_no_broker_that_stops_responding_on_an_open_connection() -> None:
    first, second = ScriptedBroker({}), ScriptedBroker({}, node_id=2)
    async with cluster_of(first, second) as cluster:
        enough = await look_for(cluster, 2, SECONDS)
        assert enough is not None
        assert enough.is_enough
        second.script[MetadataRequest] = Reaction.SILENCE
        first.script[MetadataRequest] = metadata({1: first.address, 2: second.address}, {}, controller_id=2)
        found = await look_for(cluster, 1, SECONDS)
        assert found is not None
        assert not found.is_enough
        assert found.missing == "no response from the controller, broker 2"


@pytest.mark.parametrize(
    ("responding", "controller_id", "missing"),
    [
        ((1,), 2, "1 of 2 brokers; no response from 2, listed as members of the cluster"),
        ((1, 2), None, "no controller"),
        ((1, 2), 3, "no response from the controller, broker 3"),
        ((1, 2), 2, ""),
    ],
)
def test_judge_names_what_is_missing(responding: tuple[int, ...], controller_id: int | None, missing: str) -> None:
    found = judge((1, 2), responding, controller_id, 2)
    assert (found.missing, found.is_enough) == (missing, not missing)
