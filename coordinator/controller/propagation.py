"""What the controller sends to brokers after partitions have changed.

Replicas get LeaderAndIsr, all brokers UpdateMetadata. Large batches are built in portions, and between two portions the
loop has a turn; the functions named ``_now`` build everything in this turn of the loop.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence

from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import PARTITIONS_PER_PASS, chunks, is_being_deleted
from oncelog.protocol.topic_partition import TopicPartition


async def send_changes(
    context: ControllerContext, leadership: Iterable[TopicPartition], metadata: Iterable[TopicPartition]
) -> None:
    """Send the states of ``leadership`` to their replicas, and those of ``metadata`` to all brokers.

    All brokers get the list of live brokers, also if ``metadata`` is empty.
    """
    for _ in _changes(context, list(leadership), list(metadata)):
        await asyncio.sleep(0)


def send_changes_now(
    context: ControllerContext, leadership: Iterable[TopicPartition], metadata: Iterable[TopicPartition]
) -> None:
    """Do as ``send_changes`` in this turn of the loop."""
    for _ in _changes(context, list(leadership), list(metadata)):
        pass


def _changes(
    context: ControllerContext, leadership: Sequence[TopicPartition], metadata: Sequence[TopicPartition]
) -> Iterator[None]:
    for number, portion in enumerate(chunks(leadership, PARTITIONS_PER_PASS)):
        if number:
            yield
        requests = context.new_requests()
        for partition in portion:
            if _has_replicas_to_inform(context, partition):
                requests.add_leader_and_isr(partition, context.state.replicas(partition).replicas)
        context.send(requests)
    for number, portion in enumerate(chunks(metadata, PARTITIONS_PER_PASS) if metadata else [()]):
        if number:
            yield
        requests = context.new_requests()
        requests.add_update_metadata(portion, context.state.brokers)
        context.send(requests)


def _has_replicas_to_inform(context: ControllerContext, partition: TopicPartition) -> bool:
    return context.state.state(partition) is not None and not is_being_deleted(context, partition)


async def send_new_partitions(context: ControllerContext, partitions: Iterable[TopicPartition]) -> None:
    """Send new partitions to their live replicas, and then to all brokers as metadata."""
    added = list(partitions)
    for portion in chunks(added, PARTITIONS_PER_PASS):
        requests = context.new_requests()
        for partition in portion:
            if context.state.state(partition) is not None:
                requests.add_leader_and_isr(partition, context.state.replicas(partition).replicas, is_new=True)
        context.send(requests)
        await asyncio.sleep(0)  # Between portions the loop has its turn.
    requests = context.new_requests()
    requests.add_update_metadata(added, context.state.brokers)
    context.send(requests)


def resend_topics(context: ControllerContext, names: Iterable[str]) -> None:
    """Send all partitions of these topics again, to their replicas and as metadata to all brokers.

    Topics that do not exist, or are being deleted, are left out.
    """
    state = context.state
    existing = [name for name in names if name in state.topics and name not in state.topics_to_delete]
    requests, partitions = context.new_requests(), list(state.partitions(existing))
    for partition in partitions:
        if state.state(partition) is not None:
            requests.add_leader_and_isr(partition, state.replicas(partition).replicas)
    requests.add_update_metadata(partitions, state.brokers)
    context.send(requests)


async def send_everything(context: ControllerContext, broker_ids: Collection[int]) -> None:
    """Send brokers the whole state: the metadata of all partitions, and then what each of them leads and follows."""
    send_full_metadata(context, broker_ids)
    for broker_id in broker_ids:
        await send_leaderships(context, broker_id)


def send_full_metadata(context: ControllerContext, broker_ids: Collection[int]) -> None:
    """Send brokers the live brokers and every partition.

    This goes before any LeaderAndIsr: a broker takes a partition that is not in its metadata for deleted.
    """
    requests = context.new_requests()
    requests.add_full_metadata(broker_ids)
    context.send(requests)


def send_live_brokers(context: ControllerContext, broker_id: int) -> None:
    """Send a broker the list of live brokers."""
    requests = context.new_requests()
    requests.add_update_metadata((), [broker_id])
    context.send(requests)


def has_leaderships(context: ControllerContext, broker_id: int) -> bool:
    """Return whether a broker is sent LeaderAndIsr: it has a replica of a partition that is not being deleted."""
    return any(_has_replicas_to_inform(context, partition) for partition in context.state.partitions_on(broker_id))


async def send_leaderships(context: ControllerContext, broker_id: int) -> None:
    """Send a broker LeaderAndIsr of every partition that it has a replica of."""
    for _ in _leaderships(context, broker_id):
        await asyncio.sleep(0)


def send_leaderships_now(context: ControllerContext, broker_id: int) -> None:
    """Do as ``send_leaderships`` in this turn of the loop."""
    for _ in _leaderships(context, broker_id):
        pass


def _leaderships(context: ControllerContext, broker_id: int) -> Iterator[None]:
    for number, portion in enumerate(chunks(list(context.state.partitions_on(broker_id)), PARTITIONS_PER_PASS)):
        if number:
            yield
        requests = context.new_requests()
        for partition in portion:
            if _has_replicas_to_inform(context, partition):
                requests.add_leader_and_isr(partition, [broker_id])
        context.send(requests)
