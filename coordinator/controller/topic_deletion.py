"""Deleting topics: an intention that survives its controller, carried out replica by replica.

A deletion is accepted when ``/admin/delete_topics/T`` exists. Then all brokers remove the topic from their metadata
(UpdateMetadata), and those that hold replicas delete them (StopReplica). When every replica is known to be deleted, the
topic's znodes are removed, the intention last. While a replica's broker is down, or could not delete it, the topic
stays in this state: no client sees it, and its name is taken. The deletion is tried again when a broker starts and when
a new controller does.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence

from oncelog.coordinator.controller.api_error import NO_ERROR, NOT_CONTROLLER, ApiError
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import PARTITIONS_PER_MULTI, PARTITIONS_PER_PASS, chunks
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Create, Delete, MultiFailed, StoreError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.stop_replica import StopReplicaResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class TopicDeletions:
    """The deletions that are under way in one controller epoch."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._undeleted: dict[str, dict[tuple[int, TopicPartition], None]] = {}
        """By topic, the (broker, partition) pairs that are not known to be deleted."""
        self._waiting: dict[str, asyncio.Future[bool]] = {}

    async def begin(self, topics: Sequence[str]) -> None:
        """Accept the deletion of existing topics, and start it."""
        if not topics:
            return
        results = await self._context.commit_many([[Create(path=paths.delete_topic(topic))] for topic in topics])
        for topic, result in zip(topics, results, strict=True):
            accepted = not isinstance(result, MultiFailed) or result.error is StoreError.NODE_EXISTS
            assert accepted, f"the deletion of {topic} cannot be recorded: {result}"
            self._context.state.topics_to_delete[topic] = None
        await self.resume(topics)

    def finished(self, topic: str) -> asyncio.Future[bool]:
        """Return a future: True when no replica of the topic is left, False if the controller epoch ends first."""
        if topic not in self._waiting:
            self._waiting[topic] = asyncio.get_running_loop().create_future()
        return self._waiting[topic]

    def awaited_brokers(self, topic: str) -> list[int]:
        """Return the brokers with replicas of a topic that are not known to be deleted."""
        return sorted({broker_id for broker_id, _ in self._undeleted.get(topic, ())})

    async def resume(self, topics: Iterable[str]) -> None:
        """Send StopReplica to the brokers that still have replicas of topics whose deletion was accepted."""
        topics = list(topics)
        if not topics:
            return
        for portion in chunks(list(self._context.state.partitions(topics)), PARTITIONS_PER_PASS):
            requests = self._context.new_requests()
            requests.add_update_metadata(portion, self._context.state.brokers)
            self._context.send(requests)
            await asyncio.sleep(0)  # Between portions the loop has its turn.
        undeleted: list[tuple[int, TopicPartition]] = []
        for topic in topics:
            if topic not in self._undeleted:
                self._undeleted[topic] = await self._replicas(topic)
            undeleted += self._undeleted[topic]
        for replicas in chunks(undeleted, PARTITIONS_PER_PASS):
            self._stop(replicas)
            await asyncio.sleep(0)
        await self.finish_deleted()

    def _stop(self, replicas: Iterable[tuple[int, TopicPartition]]) -> None:
        requests = self._context.new_requests()
        for broker_id, partition in replicas:
            if partition.topic in self._context.state.topics:
                requests.add_stop_replica(partition, [broker_id], delete=True)
        self._context.send(requests)

    async def _replicas(self, topic: str) -> dict[tuple[int, TopicPartition], None]:
        """Return the (broker, partition) pairs in order. The loop has a turn after each portion but the last."""
        replicas: dict[tuple[int, TopicPartition], None] = {}
        state = self._context.state
        for portion in chunks(list(state.partitions([topic])), PARTITIONS_PER_PASS):
            if replicas:
                await asyncio.sleep(0)
            for partition in portion:
                replicas.update(dict.fromkeys((broker, partition) for broker in state.replicas(partition).replicas))
        return replicas

    def on_response(self, broker_id: int, response: Message | None) -> bool:
        """Note what a broker has deleted; return whether a topic has no replica left."""
        if not isinstance(response, StopReplicaResponse) or response.error_code != ErrorCode.NONE:
            logger.warning("Broker %d did not delete replicas: %s", broker_id, response)
            return False
        is_last = False
        for error in response.partition_errors:
            partition = TopicPartition(error.topic_name, error.partition_index)
            if error.error_code == ErrorCode.NONE:
                undeleted = self._undeleted.get(partition.topic)
                if undeleted is not None:
                    undeleted.pop((broker_id, partition), None)
                    is_last |= not undeleted
            else:
                logger.warning(
                    "Broker %d did not delete %s: %s", broker_id, partition, ErrorCode(error.error_code).name
                )
        return is_last

    async def finish_deleted(self) -> None:
        """Remove the znodes of topics that have no replica left."""
        deleted = [topic for topic, undeleted in self._undeleted.items() if not undeleted]
        for topics in self._portions(deleted):
            await self._remove_znodes(topics)
            for topic in topics:
                self._forget(topic)

    def _portions(self, topics: Iterable[str]) -> Iterator[list[str]]:
        """Yield topics whose znodes are removed in the same calls: few znodes take as long as many."""
        portion: list[str] = []
        count = 0
        for topic in topics:
            partitions = len(self._context.state.topics[topic].assignment.partitions)
            if portion and count + partitions > PARTITIONS_PER_PASS:
                yield portion
                portion, count = [], 0
            portion.append(topic)
            count += partitions
        if portion:
            yield portion

    def _forget(self, topic: str) -> None:
        del self._undeleted[topic]
        self._context.state.remove_topic(topic)
        logger.info("Deleted topic %s", topic)
        waiting = self._waiting.pop(topic, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(True)

    async def _remove_znodes(self, topics: Sequence[str]) -> None:
        """Remove the partitions of all topics first, then the rest of each topic in one batch, the intention last."""
        for partitions in chunks(list(self._context.state.partitions(topics)), PARTITIONS_PER_PASS // 2):
            children = [*map(paths.partition_state, partitions), *map(paths.partition, partitions)]
            existing = await self._existing(children)
            await self._remove(chunks([path for path in children if path in existing]))
            await asyncio.sleep(0)  # Between portions the loop has its turn.
        rest = [_without_partitions(topic) for topic in topics]
        existing = await self._existing([path for each in rest for path in each])
        await self._remove(
            [path for each in some for path in each if path in existing]
            for some in chunks(rest, PARTITIONS_PER_MULTI // len(rest[0]))
        )

    async def _remove(self, batches: Iterable[Sequence[str]]) -> None:
        operations = [[Delete(path=path) for path in batch] for batch in batches]
        for batch, result in zip(operations, await self._context.commit_many(operations), strict=True):
            assert not isinstance(result, MultiFailed), f"{batch[result.index].path} cannot be removed: {result.error}"

    async def _existing(self, wanted: Sequence[str]) -> set[str]:
        found = await self._context.session.get_many(wanted)
        return {path for path, znode in zip(wanted, found, strict=True) if znode is not None}

    def end(self) -> None:
        """Release the requests that wait: the controller epoch has ended, and the next controller goes on."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(False)
        self._waiting.clear()


def _without_partitions(topic: str) -> tuple[str, ...]:
    """Return the znodes of a topic without partitions, the intention to delete it last."""
    return paths.partitions(topic), paths.topic_config(topic), paths.topic(topic), paths.delete_topic(topic)


def unknown_topic(topic: str) -> ApiError:
    """Return the error of a deletion of a topic that does not exist."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic}' does not exist.")


def name_taken(topic: str, awaited: Sequence[int]) -> ApiError:
    """Return the error of a creation under the name of a topic whose deletion waits for these brokers."""
    waits = f", which waits for {_brokers(awaited)}" if awaited else ""
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' is marked for deletion{waits}.")


def deletion_result(finished: asyncio.Future[bool], awaited: Sequence[int]) -> ApiError:
    """Return the result of a deletion after the time that the client gave it.

    ``awaited`` are the brokers that still have replicas of the topic, as far as they are known.
    """
    if not finished.done():
        where = f" (on {_brokers(awaited)})" if awaited else ""
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"The topic will be deleted when all of its replicas are reachable{where}."
        )
    return NO_ERROR if finished.result() else NOT_CONTROLLER


def _brokers(broker_ids: Sequence[int]) -> str:
    return f"broker{'' if len(broker_ids) == 1 else 's'} {', '.join(map(str, broker_ids))}"
