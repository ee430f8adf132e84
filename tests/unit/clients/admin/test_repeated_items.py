"""What a second request holds: the items that the first one did not settle, and no others."""

from oncelog.clients.admin.configs import (
    ConfigChange,
    Operation,
    Resource,
    ResourceType,
    alter_configs,
    replace_configs,
)
from oncelog.clients.admin.features import FeatureUpdate, update_features
from oncelog.clients.admin.group_offsets import commit_offsets
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages import alter_configs as legacy
from oncelog.protocol.messages import incremental_alter_configs as incremental
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.coordinator_scripts import coordinated_by
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of, in_turn

A, B = (Resource(type=ResourceType.TOPIC, name=name) for name in "ab")
CHANGE = ConfigChange(name="retention.ms", operation=Operation.SET, value="1")


@in_virtual_time
async def test_offset_commit_is_retried_for_refused_partitions_only() -> None:
    """The group may have members by then, and would refuse what it has taken."""

    def respond(request: Message) -> OffsetCommitResponse:
        assert isinstance(request, OffsetCommitRequest)
        partitions = [partition.partition_index for partition in request.topics[0].partitions]
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partitions == [0, 1] else ErrorCode.NONE
        errors = {0: ErrorCode.NONE if partitions == [0, 1] else ErrorCode.UNKNOWN_MEMBER_ID, 1: error}
        reported = [OffsetCommitResponsePartition(partition_index=each, error_code=errors[each]) for each in partitions]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=reported)])

    broker = ScriptedBroker({OffsetCommitRequest: respond})
    broker.script[FindCoordinatorRequest] = lambda request: coordinated_by(broker)(request)
    offsets = {TopicPartition("orders", index): 7 for index in (0, 1)}
    async with cluster_of(broker) as cluster:
        assert await commit_offsets(cluster, "billing", offsets) == dict.fromkeys(offsets)
    assert len(broker.seen(OffsetCommitRequest)) == 2


@in_virtual_time
async def test_configuration_change_is_retried_for_refused_resources_only() -> None:
    requested: list[list[str]] = []

    def respond(request: Message) -> Message:
        assert isinstance(request, incremental.IncrementalAlterConfigsRequest | legacy.AlterConfigsRequest)
        names = [resource.resource_name for resource in request.resources]
        requested.append(names)
        errors = {"a": ErrorCode.NONE, "b": ErrorCode.NOT_CONTROLLER if len(names) == 2 else ErrorCode.INVALID_CONFIG}
        if isinstance(request, legacy.AlterConfigsRequest):
            return legacy.AlterConfigsResponse(
                responses=[
                    legacy.AlterConfigsResourceResponse(resource_type=2, resource_name=name, error_code=errors[name])
                    for name in names
                ]
            )
        return incremental.IncrementalAlterConfigsResponse(
            responses=[
                incremental.AlterConfigsResourceResponse(resource_type=2, resource_name=name, error_code=errors[name])
                for name in names
            ]
        )

    broker = ScriptedBroker({incremental.IncrementalAlterConfigsRequest: respond, legacy.AlterConfigsRequest: respond})
    async with cluster_of(broker) as cluster:
        for outcomes in (
            await alter_configs(cluster, {A: [CHANGE], B: [CHANGE]}),
            await replace_configs(cluster, {A: {}, B: {"retention.ms": "x"}}),
        ):
            assert outcomes[A] is None
            assert isinstance(outcomes[B], Refusal)
            assert outcomes[B].error is ErrorCode.INVALID_CONFIG
    assert requested == [["a", "b"], ["b"]] * 2


@in_virtual_time
async def test_level_that_a_lost_request_has_finalised_is_a_success() -> None:
    refused = UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION)
    for finalised, outcome in ((2, None), (1, ErrorCode.INVALID_UPDATE_VERSION)):
        broker = ScriptedBroker({UpdateFeaturesRequest: in_turn(Reaction.CLOSE, refused)})
        broker.transaction_version = finalised
        async with cluster_of(broker) as cluster:
            outcomes = await update_features(cluster, {"transaction.version": FeatureUpdate(2)})
        (reported,) = outcomes.values()
        assert (reported and reported.error) == outcome
