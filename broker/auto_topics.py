"""Topics that come into being because somebody needs them: auto-created ones, and the two internal topics.

However many requests ask for a topic at once, it is created once; all wait for that, for a bounded time, and until this
broker has heard of the new topic. A creation that takes longer goes on, and is found done by the next request. What
keeps an internal topic from being created (not enough brokers yet) is in the log, because its clients only see
COORDINATOR_NOT_AVAILABLE.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from broker.config import BrokerConfig
from broker.controller_client import ControllerClient
from broker.supervisor import Supervisor
from broker.topic_config import group_metadata_topic_configs, transaction_state_topic_configs
from coordinator.controller.api_error import NO_ERROR, ApiError
from coordinator.controller.cluster_image import (
    GROUP_METADATA_TOPIC_NAME,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC_NAME,
    MetadataCache,
    MetadataChange,
)
from coordinator.controller.topic_plan import NewTopic
from protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

_LONGEST_WAIT_SECONDS: Final = 2.0
_TOLD: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR})
"""Reasons that a client can do something about. With any other it can only ask again."""


class AutoTopicCreation:
    """Creates topics through the controller, each at most once at a time."""

    def __init__(
        self, config: BrokerConfig, controller: ControllerClient, metadata: MetadataCache, supervisor: Supervisor
    ) -> None:
        self._config = config
        self._controller = controller
        self._metadata = metadata
        self._supervisor = supervisor
        self._expected: dict[str, asyncio.Future[None]] = {}
        """Topics that are created and not yet in the metadata."""
        metadata.add_listener(self._on_metadata_change)
        self._under_way: dict[str, asyncio.Task[ErrorCode]] = {}

    async def create(self, names: Collection[str]) -> dict[str, ErrorCode]:
        """Create topics with valid names that do not exist; for each that does not exist yet, what a client is told."""
        tasks = {name: self._under_way.get(name) or self._begin(name) for name in names}
        await asyncio.wait(tasks.values(), timeout=_LONGEST_WAIT_SECONDS)
        return {
            name: error
            for name, task in tasks.items()
            if (error := _outcome(task) if task.done() else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        }

    def _begin(self, name: str) -> asyncio.Task[ErrorCode]:
        task = self._supervisor.spawn(self._create(name), f"create {name}")
        self._under_way[name] = task
        task.add_done_callback(lambda _: self._under_way.pop(name))
        return task

    async def _create(self, name: str) -> ErrorCode:
        result = await self._controller.create_topic(self._new_topic(name))
        if result == NO_ERROR or result.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return await self._until_known(name)
        self._log_refusal(name, result)
        return result.code if result.code in _TOLD else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _until_known(self, name: str) -> ErrorCode:
        if self._metadata.topic_exists(name):
            return ErrorCode.NONE
        known = self._expected[name] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                await known
        except TimeoutError:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        finally:
            del self._expected[name]
        return ErrorCode.NONE

    def _on_metadata_change(self, change: MetadataChange) -> None:
        for name, known in self._expected.items():
            if change.after.topic(name) is not None and not known.done():
                known.set_result(None)

    def _new_topic(self, name: str) -> NewTopic:
        config = self._config
        if name == GROUP_METADATA_TOPIC_NAME:
            return NewTopic(
                name=name,
                partition_count=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                configs=group_metadata_topic_configs(config),
            )
        if name == TRANSACTION_STATE_TOPIC_NAME:
            return NewTopic(
                name=name,
                partition_count=config.transaction_state_log_num_partitions,
                replication_factor=config.transaction_state_log_replication_factor,
                configs=transaction_state_topic_configs(config),
            )
        return NewTopic(name=name)

    def _log_refusal(self, name: str, error: ApiError) -> None:
        hint = ""
        if name in INTERNAL_TOPICS and error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
            offsets = name == GROUP_METADATA_TOPIC_NAME
            key = "offsets.topic" if offsets else "transaction.state.log"
            hint = f" (start more brokers, or lower {key}.replication.factor)"
        logger.warning("%s was not created: %s %s%s", name, error.code.name, error.message or "", hint)


def _outcome(task: asyncio.Task[ErrorCode]) -> ErrorCode:
    failed = task.cancelled() or task.exception() is not None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if failed else task.result()
