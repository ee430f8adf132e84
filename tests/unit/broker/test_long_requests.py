"""Requests for thousands of topics or partitions do not keep the event loop: their work is divided, or off the loop."""

import asyncio
import errno
from dataclasses import replace
from functools import partial

import pytest

from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.delete_topics import handle_delete_topics
from oncelog.broker.handlers.metadata import handle_metadata
from oncelog.broker.handlers.offset_commit import handle_offset_commit
from oncelog.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from oncelog.broker.parts import Broker
from oncelog.broker.peers.auto_topics import TOPICS_AT_ONCE
from oncelog.broker.storage.disk import Directories
from oncelog.coordinator.controller.cluster_image import MetadataChange, PartitionImage, TopicImage
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.handlers.administration import ask, new_disk, settle
from tests.unit.broker.test_start import create, start
from tests.unit.broker.turns import longest_turn


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
    assert broker.replica_manager.led_partition(("t", 0)).log  # type: ignore[union-attr]
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


async def test_deletion_of_many_partitions_is_sent_in_portions() -> None:
    broker = await start(new_disk())
    await create_partitions(broker, "wide", 1_000)
    reported: list[int] = []

    def count(change: MetadataChange) -> None:
        before, after = change.before.topic("wide"), change.after.topic("wide")
        reported.append(len(before.partitions if before else ()) - len(after.partitions if after else ()))

    broker.metadata.add_listener(count)
    request = DeleteTopicsRequest(topic_names=["wide"], timeout_ms=60_000)
    response = await ask(broker, handle_delete_topics, request, DeleteTopicsResponse, version=5)
    assert response.responses[0].error_code == ErrorCode.NONE
    assert sum(reported) == 1_000
    assert max(reported) <= 400
    assert len(list(broker.log_manager)) == 0
    await broker.stop()


def show(broker: Broker, topics: int, partitions: int) -> None:
    """Let the broker know topics ``s0``, ``s1``… that the controller does not know."""
    image = broker.metadata.image
    partition = PartitionImage(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    all_partitions = dict.fromkeys(range(partitions), partition)
    shown = {
        f"s{number}": TopicImage(name=f"s{number}", topic_id=number.to_bytes(16, "big"), partitions=all_partitions)
        for number in range(1, topics + 1)
    }
    names = {topic.topic_id: name for name, topic in shown.items()}
    broker.metadata.image = replace(image, topics={**image.topics, **shown}, topic_names={**image.topic_names, **names})


async def test_metadata_of_many_topics_is_made_in_slices_of_one_image() -> None:
    broker = await start(new_disk())
    show(broker, 3_000, 1)

    async def change_meanwhile() -> MetadataResponse:
        async with asyncio.TaskGroup() as group:
            asking = ask(broker, handle_metadata, MetadataRequest(topics=None), MetadataResponse)
            task = group.create_task(asking)
            await asyncio.sleep(0)
            broker.metadata.image = replace(broker.metadata.image, topics={})
        return task.result()

    response, lines = await longest_turn(change_meanwhile)
    assert [topic.name for topic in response.topics] == [f"s{number}" for number in range(1, 3_001)]
    assert lines < 20_000  # At once it would be 90,000.
    await broker.stop()


async def test_deletion_of_many_topics_takes_each_of_them_once() -> None:
    """For each topic named, all of those named were looked through: 2 s for 6,000 topics."""
    broker = await start(new_disk())
    show(broker, 2_000, 1)
    request = DeleteTopicsRequest(topic_names=[f"s{number}" for number in range(1, 2_001)], timeout_ms=0)
    deletion = partial(ask, broker, handle_delete_topics, request, DeleteTopicsResponse, version=5)
    response, lines = await longest_turn(deletion)
    assert {topic.error_code for topic in response.responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert lines < 200_000  # It would be 8,000,000.
    await broker.stop()


async def test_many_topics_of_one_request_are_planned_in_portions() -> None:
    broker = await start(new_disk())
    topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(4_000)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=True)
    context = RequestContext(5, 1, "c", ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT"))
    planned, lines = await longest_turn(partial(handle_create_topics, broker, context, request))
    assert {topic.error_code for topic in planned.topics} == {ErrorCode.NONE}
    assert lines < 200_000  # All at once it would be 500,000.
    await broker.stop()


def commit_of(count: int, *, transactional: bool) -> OffsetCommitRequest | TxnOffsetCommitRequest:
    if transactional:
        txn_offsets = [TxnOffsetCommitRequestPartition(partition_index=index) for index in range(count)]
        txn_topics = [TxnOffsetCommitRequestTopic(name="s1", partitions=txn_offsets)]
        return TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=7, producer_epoch=0, topics=txn_topics
        )
    offsets = [OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in range(count)]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="s1", partitions=offsets)])


@pytest.mark.parametrize(("count", "error"), [(5_000, ErrorCode.NONE), (20_000, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)])
async def test_commit_of_many_offsets_is_encoded_in_slices(count: int, error: ErrorCode) -> None:
    """It is one batch in the log, so more than ``max.message.bytes`` are refused, as by Apache Kafka."""
    broker = await start(new_disk(), "offsets.topic.num.partitions=1")
    await create(broker, "__consumer_offsets")
    await settle()
    show(broker, 1, count)
    request = commit_of(count, transactional=False)
    context = RequestContext(8, 1, "c", ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT"))
    outcome = handle_offset_commit(broker, context, request)  # type: ignore[arg-type]
    assert asyncio.iscoroutine(outcome)
    turns = 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outcome)
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
    assert turns > count / 200
    assert {partition.error_code for partition in task.result().topics[0].partitions} == {error}
    shard = broker.group_coordinator._shards.owned[0]
    committed = shard.offsets.committed("g")
    assert {partition.partition: stored.committed.offset for partition, stored in committed.items()} == (
        {} if error else {index: index for index in range(count)}
    )
    await broker.stop()


async def test_transactional_commit_of_many_offsets_is_encoded_before_it_is_verified() -> None:
    broker = await start(new_disk(), "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
    await create(broker, "__consumer_offsets", "__transaction_state")
    await settle()
    show(broker, 1, 3_000)
    request = commit_of(3_000, transactional=True)
    response = await ask(broker, handle_txn_offset_commit, request, TxnOffsetCommitResponse, version=3)
    errors = {partition.error_code for partition in response.topics[0].partitions}
    assert errors == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}  # There is no such transaction.
    await broker.stop()
