"""Requests for thousands of topics or partitions do not keep the event loop: their work is divided, or off the loop."""

import errno

import pytest

from broker.auto_topics import TOPICS_AT_ONCE
from broker.handlers.create_topics import handle_create_topics
from broker.handlers.delete_topics import handle_delete_topics
from broker.server import Broker
from broker.storage.disk import Directories
from coordinator.controller.cluster_image import MetadataChange
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.handlers.administration import ask, new_disk
from tests.unit.broker.test_server import create, start


class WatchedDisk(SimDisk):
    """Notes which names are made, changed or removed by calls on the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.named_on_loop: list[str] = []
        self._is_off_loop = False

    async def make_dirs_off_loop(self, directories: Directories) -> None:
        self._is_off_loop = True
        try:
            await super().make_dirs_off_loop(directories)
        finally:
            self._is_off_loop = False

    def enter(self, operation: str, path: str) -> None:
        if operation in ("make_dirs", "rename") and not self._is_off_loop:
            self.named_on_loop.append(path)
        super().enter(operation, path)


async def create_partitions(broker: Broker, topic: str, count: int) -> ErrorCode:
    topics = [CreatableTopic(name=topic, num_partitions=count, replication_factor=1)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
    response = await ask(broker, handle_create_topics, request, CreateTopicsResponse, version=5)
    return ErrorCode(response.topics[0].error_code)


async def test_directories_and_files_of_new_logs_are_made_off_the_loop() -> None:
    """On a busy disk each of them may take a second."""
    disk = WatchedDisk()
    disk.make_dirs("/data")
    broker = await start(disk)
    disk.named_on_loop.clear()
    assert await create_partitions(broker, "wide", 30) is ErrorCode.NONE
    assert [path for path in disk.named_on_loop if path.startswith("/data/wide")] == []
    assert all(disk.file_size(f"/data/wide-{index}/partition.metadata") for index in range(30))
    await broker.stop()


@pytest.mark.parametrize("operation", ["make_dirs", "open"])
async def test_log_whose_files_could_not_be_prepared_for_want_of_room_is_made_nevertheless(operation: str) -> None:
    disk = new_disk()
    broker = await start(disk)
    disk.fail(operation, "t-0" if operation == "make_dirs" else "00000000000000000000.log", error=errno.ENOSPC)
    assert await create_partitions(broker, "t", 1) is ErrorCode.NONE
    assert broker.replica_manager.led_partition(("t", 0)).is_leader  # type: ignore[union-attr]
    await broker.stop()


async def test_topics_of_one_request_are_created_by_few_tasks() -> None:
    """A task for each of 12,000 topics would have its first turn in the same turn of the loop."""
    broker = await start(new_disk())
    names = [f"t{number}" for number in range(3 * TOPICS_AT_ONCE)]
    before, most = len(broker.supervisor), 0

    def count(change: MetadataChange) -> None:
        nonlocal most
        most = max(most, len(broker.supervisor) - before)

    broker.metadata.add_listener(count)
    await create(broker, *names)
    assert broker.metadata.image.topics.keys() >= set(names)
    assert 0 < most <= 5
    await broker.stop()


async def test_deletion_of_many_partitions_is_told_in_portions() -> None:
    broker = await start(new_disk())
    await create_partitions(broker, "wide", 1_000)
    told: list[int] = []

    def count(change: MetadataChange) -> None:
        before, after = change.before.topic("wide"), change.after.topic("wide")
        told.append(len(before.partitions if before else ()) - len(after.partitions if after else ()))

    broker.metadata.add_listener(count)
    request = DeleteTopicsRequest(topic_names=["wide"], timeout_ms=60_000)
    response = await ask(broker, handle_delete_topics, request, DeleteTopicsResponse, version=5)
    assert response.responses[0].error_code == ErrorCode.NONE
    assert sum(told) == 1_000
    assert max(told) <= 400
    assert len(list(broker.log_manager)) == 0
    await broker.stop()
