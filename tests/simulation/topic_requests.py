"""The requests of clients that create, delete, empty and configure topics, and of those that write keys."""

from typing import Any, Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NewRecord, build_batch
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.requests import RECORD_TIMESTAMP

CREATE_TOPICS_VERSION: Final = 7
DELETE_TOPICS_VERSION: Final = 6
DELETE_RECORDS_VERSION: Final = 2
INCREMENTAL_ALTER_CONFIGS_VERSION: Final = 1
FETCH_BY_TOPIC_ID_VERSION: Final = 13
_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_TIMEOUT_MS: Final = 3_000


def creation_errors(response: Any) -> set[ErrorCode]:
    """Return the errors of a CreateTopics response: a topic exists if the response to an earlier request was lost."""
    return {ErrorCode(topic.error_code) for topic in response.topics} - {ErrorCode.TOPIC_ALREADY_EXISTS}


def create_topic(name: str, partitions: int, replicas: int, **configs: str) -> CreateTopicsRequest:
    """``configs``: by key, with ``_`` instead of each dot."""
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
    return CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)


def delete_topic(topic_id: bytes) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=_TIMEOUT_MS)


def delete_records(partition: TopicPartition, offset: int) -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[part])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)


def set_topic_config(topic: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=key, config_operation=_SET, value=value)
    resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])


def keyed_batch(
    key: bytes, value: bytes | None, *, at: float, producer_id: int = NO_PRODUCER_ID, sequence: int = NO_SEQUENCE
) -> bytearray:
    """Return a batch of one record, of an idempotent producer if there is a producer id; ``at``: virtual seconds."""
    record = NewRecord(timestamp=RECORD_TIMESTAMP + int(at * 1000), key=key, value=value)
    epoch = NO_PRODUCER_EPOCH if producer_id == NO_PRODUCER_ID else 0
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
