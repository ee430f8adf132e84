"""Where the value of a setting comes from, in the responses of DescribeConfigs."""

from enum import IntEnum


class ConfigSource(IntEnum):
    """The source of a value, by Kafka's numbers, in the order in which they override each other for a topic."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8
