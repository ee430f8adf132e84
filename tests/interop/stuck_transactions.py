"""A transaction that hangs: written to a partition without its coordinator's knowledge, as a careless client would.

The broker must not verify (``transaction.partition.verification.enable=false``), as none did before KIP-890: where they
do, there is no way to write such a transaction. Its record is an hour old, so tools that look for old ones find it.
"""

import asyncio
from random import Random

from oncelog.clients.admin.offsets import LATEST, list_offsets
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.fan_out import call_leaders
from oncelog.clients.routes import Coordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.topic_partition import TopicPartition
from tests.processes import BrokerProcess

WITHOUT_VERIFICATION = "transaction.partition.verification.enable=false"
_AGE_MS = 3_600_000
_NEWEST_OF_VERSION_1 = 11


def write_hanging_transaction(address: str, partition: TopicPartition, transactional_id: str, now_ms: int) -> int:
    """Write one record and never end its transaction; returns the producer id."""
    return asyncio.run(_write(address, partition, transactional_id, now_ms))


async def _write(address: str, partition: TopicPartition, transactional_id: str, now_ms: int) -> int:
    async with Cluster(parse_bootstrap(address), rng=Random(0)) as cluster:
        producer = await cluster.call(
            Coordinator.of_transactional_id(transactional_id),
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            errors=lambda response: [response.error_code],
        )
        assert producer.error_code == ErrorCode.NONE
        batch = build_batch(
            [NewRecord(now_ms - _AGE_MS, None, b"hanging")],
            is_transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        data = PartitionProduceData(index=partition.partition, records=batch)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )
        responses = await call_leaders(
            cluster,
            {partition: None},
            lambda _: request,
            ProduceResponse,
            lambda response: [(partition, p.error_code, p) for t in response.responses for p in t.partition_responses],
            at_most=_NEWEST_OF_VERSION_1,
        )
        assert not responses.failed, responses.failed
        return producer.producer_id


def held_back(broker: BrokerProcess, partition: TopicPartition) -> int:
    """How many offsets of the partition readers of committed records do not get to see yet."""

    async def ask() -> int:
        async with Cluster(parse_bootstrap(broker.address), rng=Random(0)) as cluster:
            end = await list_offsets(cluster, {partition: LATEST})
            stable = await list_offsets(cluster, {partition: LATEST}, read_committed=True)
            return (end.found[partition].offset or 0) - (stable.found[partition].offset or 0)

    return asyncio.run(ask())
