"""The broker's own requests to the controller: by a plain call if that is this broker, else over the network.

A broker knows only the last controller that it learned of, so any request may return NOT_CONTROLLER, or get no response
(NETWORK_EXCEPTION: whether it was carried out is unknown). The caller decides whether to retry.
"""

import asyncio
from collections.abc import Sequence

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.cluster_image import NO_CONTROLLER
from oncelog.coordinator.controller.controller_apis import ControllerApis
from oncelog.coordinator.controller.topic_plan import NewTopic, TopicPlan
from oncelog.coordinator.ports import BrokerChannel
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.protocol.schema import Message


class ControllerClient:
    """The controller, as one broker reaches it."""

    def __init__(self, apis: ControllerApis, channel: BrokerChannel, config: BrokerConfig) -> None:
        self._apis = apis
        self.controller = apis.controller
        self._channel = channel
        self._request_timeout_ms = config.request_timeout_ms

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[ApiError]:
        """Create topics whose replicas the controller places; the errors are in the order of the topics."""
        if self.controller.is_active:
            results = await self._apis.create_topics(topics, timeout_seconds=self._request_timeout_ms / 1000)
            return [NO_ERROR if isinstance(result, TopicPlan) else result for result in results]
        response = await self.send(_creation(topics, self._request_timeout_ms))
        if not isinstance(response, CreateTopicsResponse):
            no_controller = self.controller.controller_id == NO_CONTROLLER
            failure = self.controller.refusal if no_controller else _NO_RESPONSE
            return [failure for _ in topics]
        errors = {topic.name: ApiError(error_of(topic.error_code), topic.error_message) for topic in response.topics}
        return [errors.get(topic.name, _NO_RESPONSE) for topic in topics]

    async def send(self, request: Message) -> Message | None:
        """Return the response of the current controller, as far as it is known; None if there is none."""
        if self.controller.controller_id == NO_CONTROLLER:
            return None
        future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()

        def settle(response: Message | None) -> None:
            if not future.done():
                future.set_result(response)

        self._channel.send(self.controller.controller_id, request, settle)
        return await future


_NO_RESPONSE = ApiError(ErrorCode.NETWORK_EXCEPTION, "The controller did not respond.")


def _creation(topics: Sequence[NewTopic], timeout_ms: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
    )
