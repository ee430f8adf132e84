"""A controller's time in office: what it may do while it lasts, and that nothing is left of it afterwards."""

import pytest

from oncelog.coordinator.controller.cluster_state import LiveBroker
from oncelog.coordinator.controller.controller_election import Victory, stand
from oncelog.coordinator.controller.reign import ControllerMoved, Reign
from oncelog.coordinator.metadata_store.store import Create
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, NotingBroker, NotingChannel, running_cluster


async def reign_over(cluster: ClusterUnderTest) -> Reign:
    """Of a controller that is none of the cluster's brokers. Its session lives on, whatever becomes of the reign."""
    session = cluster.ensemble.connect().session
    assert session is not None
    victory = await stand(session, 1, 0, lambda: None)
    assert isinstance(victory, Victory)
    cluster.brokers[1] = NotingBroker()
    reign = Reign(
        session=session,
        victory=victory,
        controller_id=1,
        channel=NotingChannel(cluster.brokers),
        listener_name="PLAINTEXT",
        on_response=lambda broker_id, request, response: None,
        on_caught_up=lambda broker_id: None,
    )
    reign.state.brokers = {1: LiveBroker(registration=BrokerRegistration(broker_id=1, endpoints=()), epoch=1)}
    return reign


async def test_what_has_ended_neither_writes_nor_reads_nor_sends() -> None:
    """B65"""
    async with running_cluster() as cluster:
        reign = await reign_over(cluster)
        await reign.commit([Create(path="/before")])
        requests = reign.requests()
        requests.tell_metadata((), [1])
        reign.end()
        with pytest.raises(ControllerMoved):
            await reign.commit([Create(path="/after")])
        with pytest.raises(ControllerMoved):
            _ = reign.session
        with pytest.raises(ControllerMoved):
            reign.send(requests)
        assert cluster.ensemble.tree.get("/before") is not None
        assert cluster.ensemble.tree.get("/after") is None
        assert not cluster.brokers[1].requests


async def test_it_ends_with_the_first_write_that_another_epoch_refuses() -> None:
    """B62"""
    async with running_cluster() as cluster:
        deposed = await reign_over(cluster)
        await deposed.session.delete("/controller")
        await reign_over(cluster)
        assert deposed.is_active
        with pytest.raises(ControllerMoved):
            await deposed.commit([Create(path="/after")])
        assert not deposed.is_active
        assert cluster.ensemble.tree.get("/after") is None
