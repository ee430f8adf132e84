"""The pure parts of a producer put together as ``Producer`` does it, with time and the wire in the hands of a test."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from oncelog.clients.cluster_metadata import ClusterMetadata
from oncelog.clients.connection import Address
from oncelog.clients.producer.batch_delivery import BatchDelivery
from oncelog.clients.producer.coordinator_requests import CoordinatorRequests
from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
from oncelog.clients.producer.pending_requests import PendingRequest
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_id_and_epoch import ProducerIdAndEpoch
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transaction_requests import InitProducerId
from oncelog.clients.retry import Backoff
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdResponse
from oncelog.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.topic_partition import TopicPartition

TOPIC = "orders"
LEADER = 1


def metadata_of(partitions: int, leader: int = LEADER, epoch: int = 0) -> ClusterMetadata:
    """Every partition of one topic is led by one broker."""
    metadata = ClusterMetadata()
    metadata.brokers = {LEADER: Address("one", 1), LEADER + 1: Address("two", 2)}
    topic = MetadataResponseTopic(
        name=TOPIC,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
            for index in range(partitions)
        ],
    )
    metadata._take_topic(TOPIC, topic, 0.0)
    return metadata


@dataclass
class Sent:
    """One record and its future; ``fates`` counts how often it was told to be done."""

    partition: int
    value: bytes
    future: FutureRecordMetadata
    fates: int = 0

    def count(self) -> None:
        self.fates += 1


class PureProducer:
    """Everything but sockets and tasks. ``now`` is seconds."""

    def __init__(self, config: ProducerConfig, partitions: int = 1) -> None:
        self.config = config
        self.now = 0.0
        self.metadata = metadata_of(partitions)
        self.manager = TransactionManager(config)
        self.requests = CoordinatorRequests(self.manager)
        rng = Random(1)
        self.accumulator = RecordAccumulator(
            config, self.manager, rng=rng, now=lambda: self.now, on_batch=lambda: None, on_full_batch=lambda: None
        )
        self.accumulator.update_topic(TOPIC, partitions, range(partitions))
        self.delivery = BatchDelivery(config, self.manager, self.accumulator, Backoff(rng=rng))
        self.sent: list[Sent] = []

    def send(self, partition: int, value: bytes) -> Sent:
        """Accept a record; whether that is allowed is not asked."""
        queue = self.accumulator.topics[TOPIC].queues[partition]
        future = self.accumulator.append(queue, 1_000, None, value, ())
        sent = Sent(partition, value, future)
        future._batch.when_done(sent.count)
        self.sent.append(sent)
        return sent

    def turn(self) -> None:
        """What the sender does whenever it is woken, but for sending."""
        self.delivery.expire(self.now)
        self.delivery.settle()
        pending = self.requests.next_request(has_incomplete=bool(self.accumulator.incomplete))
        if pending is not None:
            self.respond_coordinator(pending)

    def respond_coordinator(self, pending: PendingRequest) -> None:
        """By default, every request for a producer id gets a new one at once."""
        assert isinstance(pending.request, InitProducerId)
        producer_id = self.manager.producer.producer_id + 1 if self.manager.producer.is_valid else 7
        self.requests.handle_response(pending, InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    def drain(self) -> list[ProducerBatch]:
        """The batches of the next request; empty if nothing is ready."""
        ready = self.accumulator.readiness(self.metadata, self.now)
        for queues in ready.queues.values():
            return self.accumulator.drain(queues, self.metadata)
        return []

    def respond(self, batch: ProducerBatch, error: ErrorCode = ErrorCode.NONE, base_offset: int = 0) -> None:
        """A broker answers one batch."""
        response = PartitionProduceResponse(error_code=error, base_offset=base_offset if not error else -1)
        self.delivery.handle_response(batch, response, self.now)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return self.manager.producer


@dataclass
class Request:
    """Batches on the wire, as the bytes that they were when they left."""

    batches: list[ProducerBatch]
    encoded: list[bytes]
    responses: list[PartitionProduceResponse] | None = None
    """Set once the broker has carried it out."""

    def parts(self) -> Iterator[tuple[ProducerBatch, bytes]]:
        return zip(self.batches, self.encoded, strict=True)


class Wire:
    """The requests of one connection, in order; those that were lost with it may still arrive."""

    def __init__(self) -> None:
        self.open: deque[Request] = deque()
        self.late: deque[Request] = deque()


def partition_of(batch: ProducerBatch) -> int:
    return TopicPartition(*batch.topic_partition).partition
