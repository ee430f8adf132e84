"""What a controller may do in its epoch, and that it can do nothing afterwards."""

import pytest

from oncelog.coordinator.controller.cluster_state import LiveBroker
from oncelog.coordinator.controller.controller_context import ControllerContext, ControllerMoved
from oncelog.coordinator.metadata_store.store import Create
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster


async def context_of(cluster: ClusterUnderTest) -> ControllerContext:
    session = cluster.ensemble.connect().session
    assert session is not None
    context = await cluster.context_of_outsider(session)
    context.state.brokers = {1: LiveBroker(registration=BrokerRegistration(broker_id=1, endpoints=()), epoch=1)}
    return context


async def test_ended_context_neither_writes_nor_reads_nor_sends() -> None:
    """B65"""
    async with running_cluster() as cluster:
        context = await context_of(cluster)
        await context.commit([Create(path="/before")])
        requests = context.new_requests()
        requests.add_update_metadata((), [1])
        context.end()
        with pytest.raises(ControllerMoved):
            await context.commit([Create(path="/after")])
        with pytest.raises(ControllerMoved):
            _ = context.session
        with pytest.raises(ControllerMoved):
            context.send(requests)
        assert cluster.ensemble.tree.get("/before") is not None
        assert cluster.ensemble.tree.get("/after") is None
        assert not cluster.brokers[1].requests


async def test_context_ends_with_first_write_that_another_epoch_refuses() -> None:
    """B62"""
    async with running_cluster() as cluster:
        deposed = await context_of(cluster)
        await deposed.session.delete("/controller")
        await context_of(cluster)
        assert deposed.is_active
        with pytest.raises(ControllerMoved):
            await deposed.commit([Create(path="/after")])
        assert not deposed.is_active
        assert cluster.ensemble.tree.get("/after") is None
