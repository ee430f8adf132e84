"""CreateTopics (API key 19): create topics, with replicas placed by the controller or chosen by the client.

Each topic succeeds or fails on its own. When the response is sent, the topic has leaders, and all live brokers know
it; the controller excludes a broker that has been silent for about 2 s. If that takes longer than the
request's time-out (but at least 1 s), the error is REQUEST_TIMED_OUT, as in Kafka, and the topic exists all the same.
Only the controller creates; another broker returns NOT_CONTROLLER.

Versions: 5 is flexible, adds what the topic became (partitions, replicas, configuration, for those who may read it) and
lets -1 stand for the broker's defaults; 6 gets THROTTLING_QUOTA_EXCEEDED for topics beyond controller_mutation_rate,
which clients of older versions may create and are throttled for (KIP-599); 7 adds the topic's id.
"""

from collections import Counter
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.handlers.config_description import ConfigDescription, ConfigEntry
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.topic_plan import NewTopic, TopicPlan
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import ZERO_UUID, SharedList

_NAMED_AGAIN: Final = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_DENIED: Final = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
_FIRST_STRICT_VERSION: Final = 6
_UNITS_PER_TOPIC: Final = 4


def refuse_create_topics(request: CreateTopicsRequest, version: int, error: ErrorCode) -> CreateTopicsResponse:
    """Return the error for every topic."""
    return CreateTopicsResponse(topics=[_refused(topic.name, ApiError(error)) for topic in request.topics])


@handles(ApiKey.CREATE_TOPICS, versions="2-7", error_response=refuse_create_topics)
def handle_create_topics(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> Outcome:
    return _create(broker, context, request)


async def _create(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    counts = Counter([topic.name for topic in request.topics])
    errors = dict.fromkeys([name for name, count in counts.items() if count > 1], _NAMED_AGAIN)
    topics = await work.finish(_new_topics(broker, context, request, errors, budget), budget, connection)
    mutations = broker.quotas.mutations(context, is_strict=context.api_version >= _FIRST_STRICT_VERSION)
    results = await broker.controller_apis.create_topics(
        topics,
        validate_only=request.validate_only,
        timeout_seconds=request.timeout_ms / 1000,
        admit=mutations.admit,
    )
    plans = dict(zip([topic.name for topic in topics], results, strict=True))
    described = _TopicConfigs(broker)

    def respond(name: str) -> CreatableTopicResult:
        outcome = errors.get(name) or plans[name]
        return _result(described, context, name, outcome, validate_only=request.validate_only)

    responses = in_slices(counts, respond, budget, _UNITS_PER_TOPIC)
    created = await work.finish(responses, budget, connection)
    return CreateTopicsResponse(throttle_time_ms=broker.quotas.settle_mutations(context, mutations), topics=created)


def _new_topics(
    broker: Broker,
    context: RequestContext,
    request: CreateTopicsRequest,
    errors: dict[str, ApiError],
    budget: WorkBudget,
) -> Steps[list[NewTopic]]:
    """Return the topics that may be created; why others may not goes to ``errors``."""
    topics: list[NewTopic] = []
    for topic in request.topics:
        if topic.name not in errors:
            if _may_create(broker, context, topic.name):
                topics.append(_new_topic(topic))
            else:
                errors[topic.name] = _DENIED
        budget.left -= _UNITS_PER_TOPIC + len(topic.assignments) + len(topic.configs)
        if budget.left <= 0:
            yield None
    return topics


class _TopicConfigs:
    """The descriptions of the topics' configurations: topics that set the same share one, which is encoded once."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._described: dict[tuple[tuple[str, str], ...], SharedList[CreatableTopicConfigs]] = {}

    def of(self, plan: TopicPlan) -> SharedList[CreatableTopicConfigs]:
        overrides = tuple(sorted(plan.configs.items()))
        described = self._described.get(overrides)
        if described is None:
            entries = ConfigDescription(self.broker).topic(plan.configs)
            described = self._described[overrides] = SharedList(_config(entry) for entry in entries)
        return described


def _may_create(broker: Broker, context: RequestContext, name: str) -> bool:
    authorizer = broker.authorizer
    return authorizer.permits(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or authorizer.authorize(
        context, Operation.CREATE, ResourceType.TOPIC, name
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, tuple(each.broker_ids)) for each in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
    )


def _result(
    described: _TopicConfigs, context: RequestContext, name: str, outcome: TopicPlan | ApiError, *, validate_only: bool
) -> CreatableTopicResult:
    if isinstance(outcome, ApiError):
        return _refused(name, outcome)
    result = CreatableTopicResult(
        name=name, topic_id=ZERO_UUID if validate_only else outcome.assignment.topic_id, error_message=None
    )
    if described.broker.authorizer.permits(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        result.num_partitions = outcome.partition_count
        result.replication_factor = outcome.replication_factor
        result.configs = described.of(outcome)
    else:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return result


def _config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.key,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
    )


def _refused(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
