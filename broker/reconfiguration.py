"""What a change of a setting of the broker, or of a topic, changes in parts that run."""

from collections.abc import Mapping

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.part_settings import log_manager_config, verification_settings
from oncelog.broker.process.supervisor import Interval
from oncelog.broker.storage.log_maintenance import LogMaintenance
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.transactions.verification import TransactionVerifier
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.config_repository import Overrides


def reconfigure_logs(logs: LogManager, config: BrokerConfig) -> None:
    """Apply the broker's settings to the log manager."""
    logs.reconfigure(log_manager_config(config))


def reconfigure_verifier(verifier: TransactionVerifier, config: BrokerConfig) -> None:
    """Apply the broker's settings to the verification of transactions."""
    verifier.settings = verification_settings(config)


def change_intervals(maintenance: LogMaintenance, intervals: Mapping[str, Interval]) -> None:
    """Repeat each work on the logs at the interval that is configured now; ``intervals`` are by its name."""
    for name, every_ms, _ in maintenance.background():
        intervals[name].change(every_ms / 1000)


def update_logs(logs: LogManager, resource: ConfigResource, overrides: Overrides) -> None:
    """Apply new overrides to the logs of a topic, or, if they are the broker's, to all logs."""
    if resource.type not in (ResourceType.TOPIC, ResourceType.BROKER):
        return
    is_topic = resource.type is ResourceType.TOPIC
    for topic in [resource.name] if is_topic else dict.fromkeys(log.topic_partition.topic for log in logs):
        logs.update_config(topic)
