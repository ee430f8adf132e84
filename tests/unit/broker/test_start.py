"""A broker starts, stops and starts again; what fails half-way leaves nothing behind."""

import asyncio
import random

import pytest

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import load_config
from oncelog.broker.handlers.metadata import handle_metadata
from oncelog.broker.parts import Broker
from oncelog.broker.start import start_broker
from oncelog.broker.storage.disk import AlreadyLocked
from oncelog.broker.storage.meta_properties import InvalidMetaProperties
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.handlers.administration import ask, new_disk


async def start(disk: SimDisk, *settings: str, seed: int = 1) -> Broker:
    overrides = ["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data", *settings]
    config = load_config(overrides=overrides).config
    return await start_broker(config, disk=disk, wall_clock=lambda: 1_700_000_000_000, rng=random.Random(seed))


async def create(broker: Broker, *names: str) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    await ask(broker, handle_metadata, request, MetadataResponse)


async def test_identity_and_topics_survive_a_restart() -> None:
    disk = new_disk()
    first = await start(disk, seed=1)
    await create(first, "orders")
    cluster, image = first.cluster_id, first.metadata.image
    await first.stop()
    second = await start(disk, seed=2)
    assert (second.broker_id, second.cluster_id) == (1, cluster)
    topic = second.metadata.image.topic("orders")
    assert topic is not None
    assert topic.topic_id == image.topics["orders"].topic_id
    assert second.replica_manager.led_partition(("orders", 0)).log  # type: ignore[union-attr]
    assert second.controller.broker_epoch > first.controller.broker_epoch
    await second.stop()


async def test_directory_remembers_its_brokers_id() -> None:
    disk = new_disk()
    await (await start(disk, "broker.id=7")).stop()
    again = await start(disk)
    assert again.broker_id == 7
    await again.stop()
    with pytest.raises(InvalidMetaProperties, match="belongs to broker 7, not 8"):
        await start(disk, "broker.id=8")
    await (await start(disk, "broker.id=7")).stop()


async def test_cluster_id_can_be_chosen_once() -> None:
    disk = new_disk()
    broker = await start(disk, "cluster.id=my-cluster")
    assert broker.cluster_id == "my-cluster"
    await broker.stop()
    again = await start(disk, "cluster.id=another")
    assert again.cluster_id == "my-cluster"
    await again.stop()


async def test_second_broker_on_the_same_directory_is_refused() -> None:
    disk = new_disk()
    broker = await start(disk)
    with pytest.raises(AlreadyLocked):
        await start(disk)
    await create(broker, "still-works")
    await broker.stop()
    await (await start(disk)).stop()


async def test_start_that_fails_leaves_the_directory_free_and_clean() -> None:
    disk = new_disk()
    taken = await start(new_disk())
    port = taken.listeners.bound[0].port
    with pytest.raises(OSError, match="address already in use"):
        await start(disk, f"listeners=PLAINTEXT://127.0.0.1:{port}")
    await taken.stop()
    broker = await start(disk)
    assert broker.log_manager.directory.previous_broker_epoch is not None
    await broker.stop()


async def test_brokers_of_one_process_share_no_topics() -> None:
    one, other = await start(new_disk(), seed=1), await start(new_disk(), "broker.id=2", seed=2)
    await create(one, "a")
    await create(other, "b")
    assert list(one.metadata.image.topics) == ["a"]
    assert list(other.metadata.image.topics) == ["b"]
    assert one.cluster_id != other.cluster_id
    await one.stop()
    await create(other, "c")
    await other.stop()


async def test_stopped_broker_leaves_no_task_and_no_listener() -> None:
    before = asyncio.all_tasks()
    broker = await start(new_disk())
    await create(broker, "a", "__consumer_offsets", "__transaction_state")
    assert asyncio.all_tasks() - before
    await broker.stop()
    assert asyncio.all_tasks() == before
    with pytest.raises(ConnectionRefusedError):
        await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, "127.0.0.1", broker.listeners.bound[0].port
        )


async def test_io_error_on_the_only_data_directory_ends_the_broker() -> None:
    disk = new_disk()
    broker = await start(disk)
    assert not broker.failure.done()
    disk.fail("open", "00000000000000000000.log")
    await create(broker, "orders")
    assert broker.failure.done()
    assert "orders-0" in broker.failure.result()
    await broker.stop()


async def test_failed_metadata_journal_ends_the_broker() -> None:
    disk = new_disk()
    broker = await start(disk)
    disk.fail("append", ".journal")
    await create(broker, "orders")
    async with asyncio.timeout(5):
        assert "journal" in await broker.failure
    await broker.stop()


def without_lock(disk: SimDisk) -> dict[str, object]:
    """What lies in the data directory."""
    names = [name for name in disk.list_dir("/data") if name != ".lock"]
    return {
        name: disk.list_dir(f"/data/{name}") if disk.is_dir(f"/data/{name}") else disk.read(f"/data/{name}")
        for name in names
    }


async def with_topic() -> SimDisk:
    disk = new_disk()
    broker = await start(disk)
    await create(broker, "orders")
    await broker.stop()
    return disk


async def refused(disk: SimDisk, *settings: str) -> str:
    before = without_lock(disk)
    with pytest.raises(ConfigError) as error:
        await start(disk, *settings)
    assert without_lock(disk) == before
    assert "/data" in str(error.value)
    assert "zookeeper.connect" in str(error.value)
    return str(error.value)


async def test_directory_of_a_cluster_member_is_refused_without_zookeeper_and_stays_as_it_is() -> None:
    disk = await with_topic()
    disk.write_atomic("/data/zookeeper-session", b"1 00\n")
    assert "zookeeper-session" in await refused(disk)
    for name in disk.list_dir("/data"):
        if name.startswith("metadata") or name == "zookeeper-session":
            disk.remove(f"/data/{name}")
    assert "no metadata journal" in await refused(disk)


async def test_directory_of_a_broker_that_is_alone_is_refused_with_zookeeper_and_stays_as_it_is() -> None:
    disk = await with_topic()
    assert "standalone" in await refused(disk, "zookeeper.connect=127.0.0.1:1", "broker.id=1")
    again = await start(disk)
    assert again.metadata.image.topic("orders") is not None
    await again.stop()


BAD_SETTINGS = [
    "listeners=PLAINTEXT://127.0.0.1:99999",
    "max.connections.per.ip.overrides=127.0.0.1",
    "oncelog.http.listener=nowhere",
]


@pytest.mark.parametrize("setting", BAD_SETTINGS)
async def test_start_that_is_refused_for_a_setting_leaves_an_empty_directory_empty(setting: str) -> None:
    disk = new_disk()
    disk.make_dirs("/data")
    with pytest.raises(ConfigError):
        await start(disk, setting)
    assert without_lock(disk) == {}


@pytest.mark.parametrize("setting", ["broker.id=8", *BAD_SETTINGS])
async def test_start_that_is_refused_for_a_setting_leaves_the_directory_as_it_is(setting: str) -> None:
    disk = await with_topic()
    before = without_lock(disk)
    with pytest.raises((ConfigError, InvalidMetaProperties)):
        await start(disk, setting)
    assert without_lock(disk) == before
