"""This broker's questions to the controller, wherever it is: in this broker by a plain call, else over the network.

Clients find the controller by themselves; these are the questions that a broker has of its own. A broker does not know
better than the last that it heard who the controller is, so any question may come back as NOT_CONTROLLER, or not at all
(NETWORK_EXCEPTION: whether it was done is unknown). Whoever asked decides whether to ask again.
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
        response = await self.ask(_creation(topics, self._request_timeout_ms))
        if not isinstance(response, CreateTopicsResponse):
            nobody = self.controller.controller_id == NO_CONTROLLER
            unanswered = self.controller.refusal if nobody else _NOT_ANSWERED
            return [unanswered for _ in topics]
        told = {topic.name: ApiError(error_of(topic.error_code), topic.error_message) for topic in response.topics}
        return [told.get(topic.name, _NOT_ANSWERED) for topic in topics]

    async def ask(self, request: Message) -> Message | None:
        """Return the response of the current controller, as far as it is known; None if there is none."""
        if self.controller.controller_id == NO_CONTROLLER:
            return None
        answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()

        def settle(response: Message | None) -> None:
            if not answer.done():
                answer.set_result(response)

        self._channel.send(self.controller.controller_id, request, settle)
        return await answer


_NOT_ANSWERED = ApiError(ErrorCode.NETWORK_EXCEPTION, "The controller did not answer.")


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
