"""A start that is refused leaves the data directory as it was: it had no right to it.

What a refused start writes harms the next one: with ``zookeeper-session`` a directory counts as that of a member of a
cluster, and over the session of the former process it costs that broker the quick end of its registration.
"""

import asyncio
import random
from collections.abc import Mapping

import pytest

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.storage.meta_properties import InvalidMetaProperties
from oncelog.coordinator.controller.membership import BrokerIdTaken, EndpointTaken
from tests.simulation.cluster_stories import assert_agreement, create, simulate
from tests.simulation.sim_disk import SimDisk
from tests.simulation.sim_zookeeper import SimZooKeeper
from tests.simulation.simulated_cluster import ClusterBroker, SimulatedCluster

_LOCK = "/data/.lock"


def files(disk: SimDisk, directory: str = "/data") -> dict[str, bytes]:
    """The files below a directory by path, except the lock, which a start takes to look at the others."""
    found: dict[str, bytes] = {}
    for name in disk.list_dir(directory) if disk.exists(directory) else ():
        path = f"{directory}/{name}"
        if disk.is_dir(path):
            found |= files(disk, path)
        elif path != _LOCK:
            found[path] = disk.read(path)
    return found


def newcomer(
    cluster: SimulatedCluster,
    broker_id: int,
    content: Mapping[str, bytes],
    settings: Mapping[str, str],
    ensemble: SimZooKeeper | None = None,
) -> ClusterBroker:
    """A process of its own, on another port, with these files."""
    own = {"listeners": "PLAINTEXT://127.0.0.1:9999", **settings}
    broker = ClusterBroker(broker_id, cluster.loop, random.Random(5), ensemble or cluster.ensemble, {})
    broker.settings.update(own)
    broker.disk.make_dirs("/data")
    for path, data in content.items():
        broker.disk.make_dirs(path.rpartition("/")[0])
        broker.disk.write_atomic(path, data)
    return broker


async def assert_refused(broker: ClusterBroker, error: type[Exception], reason: str) -> None:
    before = files(broker.disk)
    with pytest.raises(error, match=reason):
        await broker.start()
    assert files(broker.disk) == before


class TestRefusedStartOfClusterMemberWritesNothing:
    @pytest.mark.parametrize("is_copy", [False, True], ids=["empty directory", "copied directory"])
    def test_start_with_the_broker_id_of_a_live_broker_is_refused(self, is_copy: bool) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2,))
            content = files(cluster[2].disk) if is_copy else {}
            broker = newcomer(cluster, 2, content, {})
            await assert_refused(broker, BrokerIdTaken, "broker.id=2 is taken by a live broker")
            assert_agreement(cluster)

        simulate(story)

    def test_start_with_the_address_of_a_live_broker_is_refused(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            taken = f"PLAINTEXT://127.0.0.1:{cluster[2].port}"
            broker = newcomer(cluster, 9, {}, {"advertised.listeners": taken})
            await assert_refused(broker, EndpointTaken, f"advertised.listeners has {taken}, which is .* of broker 2:")
            assert_agreement(cluster)
            cluster[2].kill()
            await broker.start()

        simulate(story)

    def test_start_with_the_directory_of_another_cluster_is_refused(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2,))
            await cluster[2].stop()
            other = SimZooKeeper(random.Random(7))
            broker = newcomer(cluster, 2, files(cluster[2].disk), {}, other)
            await assert_refused(broker, InvalidMetaProperties, "belongs to cluster")

        simulate(story)

    def test_start_with_the_directory_of_another_broker_is_refused(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await cluster[2].stop()
            broker = newcomer(cluster, 8, files(cluster[2].disk), {})
            await assert_refused(broker, InvalidMetaProperties, "belongs to broker 2, not 8")

        simulate(story)

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("broker.id", "2000"),
            ("listeners", "PLAINTEXT://127.0.0.1:99999"),
            ("max.connections.per.ip.overrides", "127.0.0.1"),
            ("oncelog.http.listener", "nowhere"),
        ],
    )
    def test_start_with_a_bad_setting_is_refused(self, key: str, text: str) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await assert_refused(newcomer(cluster, 8, {}, {key: text}), ConfigError, key)

        simulate(story)


def test_session_file_names_the_session_of_a_broker_that_runs_also_after_an_expiry() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        for _ in range(2):
            store = cluster[2].store
            assert store is not None
            assert store.session is not None
            named = files(cluster[2].disk)["/data/zookeeper-session"]
            assert int(named.split()[0], 16) == store.session.session_id
            cluster.ensemble.expire(store.session.session_id)
            await asyncio.sleep(10)
            assert_agreement(cluster)

    simulate(story)
