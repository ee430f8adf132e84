"""Where everything lies in the metadata store: the znode paths of Apache Kafka 3.x in ZooKeeper mode.

What the znodes hold is in ``znodes.py``.
"""

from typing import Final

from oncelog.protocol.topic_partition import TopicPartition

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
FEATURE: Final = "/feature"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LATEST_PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

BROKER_IDS: Final = "/brokers/ids"
BROKER_REGISTRATIONS: Final = "/brokers/registrations"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"

CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CLIENT_METRICS_CONFIGS: Final = "/config/client-metrics"
GROUP_CONFIGS: Final = "/config/groups"
USER_CONFIGS: Final = "/config/users"
CLIENT_CONFIGS: Final = "/config/clients"
IP_CONFIGS: Final = "/config/ips"
DEFAULT_ENTITY: Final = "<default>"
"""The entity whose configuration holds for all entities of its type."""

CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"

PERSISTENT_PATHS: Final = (
    "/admin",
    DELETE_TOPICS,
    "/brokers",
    BROKER_IDS,
    BROKER_REGISTRATIONS,
    BROKER_SEQUENCE,
    TOPICS,
    "/cluster",
    CONFIG,
    BROKER_CONFIGS,
    CONFIG_CHANGES,
    CLIENT_METRICS_CONFIGS,
    CLIENT_CONFIGS,
    GROUP_CONFIGS,
    IP_CONFIGS,
    TOPIC_CONFIGS,
    USER_CONFIGS,
    "/consumers",
    "/isr_change_notification",
    LATEST_PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
)
"""What a broker makes sure of when it starts, parents first."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def last_registration(broker_id: int) -> str:
    return f"{BROKER_REGISTRATIONS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    return f"{TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def partition_state(topic_partition: TopicPartition) -> str:
    return f"{partition(topic_partition)}/state"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"
