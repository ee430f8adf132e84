"""ProduceRequest: how batches become one request, and in which versions it may be sent. Pure."""

from typing import Final

from oncelog.clients.cluster_metadata import ClusterMetadata
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ACKS, ProducerConfig
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.schema import ZERO_UUID, Versions

_LAST_OF_PROTOCOL_1: Final = 11
_FIRST_OF_PROTOCOL_2: Final = 12
_LAST_WITH_NAMES: Final = 12


def produce_request(
    batches: list[ProducerBatch], config: ProducerConfig, manager: TransactionManager, metadata: ClusterMetadata
) -> tuple[ProduceRequest, Versions]:
    """Return the request for some batches, and the versions in which it means what it must.

    Versions from 13 name topics by id, so the id of each topic has to be known. From version 12 on a produce adds its
    partition to the transaction, which is what protocol 2 requires and protocol 1 excludes. May raise what compressing
    raises, ``MemoryError`` for example.
    """
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        name, partition = batch.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = TopicProduceData(name=name, topic_id=metadata.topic_id(name))
        topic.partition_data.append(PartitionProduceData(index=partition, records=batch.encode(config.codec)))
    first, last = ProduceRequest.versions.first, ProduceRequest.versions.last
    if any(topic.topic_id == ZERO_UUID for topic in topics.values()):
        last = _LAST_WITH_NAMES
    if manager.is_transactional and manager.protocol == 1:
        last = _LAST_OF_PROTOCOL_1
    elif manager.is_transactional:
        first = _FIRST_OF_PROTOCOL_2
    request = ProduceRequest(
        transactional_id=manager.transactional_id,
        acks=ACKS[config.acks],
        timeout_ms=config.request_timeout_ms,
        topic_data=list(topics.values()),
    )
    return request, Versions(first, last)
