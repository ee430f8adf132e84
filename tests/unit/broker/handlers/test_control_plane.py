"""Orders of a controller, over every version: obeyed, or refused with the right code."""

from typing import Any

import pytest

from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.handlers import all_handlers
from oncelog.broker.handlers.alter_partition import handle_alter_partition
from oncelog.broker.handlers.alter_partition_reassignments import handle_alter_partition_reassignments
from oncelog.broker.handlers.controlled_shutdown import handle_controlled_shutdown
from oncelog.broker.handlers.elect_leaders import handle_elect_leaders
from oncelog.broker.handlers.leader_and_isr import handle_leader_and_isr
from oncelog.broker.handlers.list_partition_reassignments import handle_list_partition_reassignments
from oncelog.broker.handlers.stop_replica import handle_stop_replica
from oncelog.broker.handlers.update_metadata import handle_update_metadata
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from oncelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from oncelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.handlers.administration import Denies, ask, running_broker

EPOCH = 7
"""Of a controller that is newer than the broker's own."""


def state(**names: str) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=3, isr=[1], replicas=[1], controller_epoch=EPOCH, **names
    )


def leader_and_isr(version: int, **fields: int) -> LeaderAndIsrRequest:
    if version < 2:
        return LeaderAndIsrRequest(
            controller_id=2, controller_epoch=EPOCH, ungrouped_partition_states=[state(topic_name="t")], **fields
        )
    topics = [LeaderAndIsrTopicState(topic_name="t", topic_id=bytes(range(16)), partition_states=[state()])]
    return LeaderAndIsrRequest(controller_id=2, controller_epoch=EPOCH, topic_states=topics, **fields)


def stop_replica(version: int, **fields: int) -> StopReplicaRequest:
    request = StopReplicaRequest(controller_id=2, controller_epoch=EPOCH, delete_partitions=True, **fields)
    if version == 0:
        request.ungrouped_partitions = [StopReplicaPartitionV0(topic_name="t", partition_index=0)]
    elif version < 3:
        request.topics = [StopReplicaTopicV1(name="t", partition_indexes=[0])]
    else:
        partition = StopReplicaPartitionState(partition_index=0, leader_epoch=3, delete_partition=True)
        request.topic_states = [StopReplicaTopicState(topic_name="t", partition_states=[partition])]
    return request


def update_metadata(version: int, **fields: int) -> UpdateMetadataRequest:
    names = {"topic_name": "t"} if version < 5 else {}
    partition = UpdateMetadataPartitionState(
        partition_index=0, leader=2, leader_epoch=1, isr=[2], replicas=[2], **names
    )
    broker = UpdateMetadataBroker(id=2, v0_host="h", v0_port=9)
    if version > 0:
        listener = {"listener": "PLAINTEXT"} if version > 2 else {}
        broker.endpoints = [UpdateMetadataEndpoint(host="h", port=9, **listener)]
    request = UpdateMetadataRequest(controller_id=2, controller_epoch=EPOCH, live_brokers=[broker], **fields)
    if version < 5:
        request.ungrouped_partition_states = [partition]
    else:
        request.topic_states = [UpdateMetadataTopicState(topic_name="t", partition_states=[partition])]
    return request


@pytest.mark.parametrize("version", range(8))
async def test_leader_and_isr_makes_leaders_and_followers(version: int) -> None:
    async with running_broker() as broker:
        response = await ask(broker, handle_leader_and_isr, leader_and_isr(version), LeaderAndIsrResponse, version)
        assert response.error_code == ErrorCode.NONE
        errors = response.partition_errors or [e for topic in response.topics for e in topic.partition_errors]
        assert [error.error_code for error in errors] == [ErrorCode.NONE]
        assert broker.replica_manager.led_partition(("t", 0)).leader_epoch == 3  # type: ignore[union-attr]


async def test_leader_and_isr_without_store_is_applied_where_there_is_a_log() -> None:
    async with running_broker() as broker:
        await ask(broker, handle_leader_and_isr, leader_and_isr(7), LeaderAndIsrResponse, 7)
        await broker.controller._store.close()
        request = leader_and_isr(7)
        request.topic_states[0].partition_states[0].leader_epoch = 4
        another = LeaderAndIsrTopicState(topic_name="u", topic_id=bytes(range(1, 17)), partition_states=[state()])
        request.topic_states.append(another)
        response = await ask(broker, handle_leader_and_isr, request, LeaderAndIsrResponse, 7)
        assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert broker.replica_manager.led_partition(("t", 0)).leader_epoch == 4  # type: ignore[union-attr]
        assert broker.log_manager.get(TopicPartition("u", 0)) is None


@pytest.mark.parametrize("version", [1, 7])
async def test_leader_and_isr_of_a_topic_whose_configuration_is_malformed_creates_no_log(version: int) -> None:
    async with running_broker() as broker:
        session = broker.controller._store.session
        assert session is not None
        await session.create(paths.topic_config("t"), b"not json")
        response = await ask(broker, handle_leader_and_isr, leader_and_isr(version), LeaderAndIsrResponse, version)
        assert response.error_code == ErrorCode.NONE
        assert response.partition_errors[0].error_code == ErrorCode.INVALID_CONFIG
        assert broker.log_manager.get(TopicPartition("t", 0)) is None


@pytest.mark.parametrize("version", range(5))
async def test_stop_replica_removes_the_replica(version: int) -> None:
    async with running_broker() as broker:
        await ask(broker, handle_leader_and_isr, leader_and_isr(7), LeaderAndIsrResponse, 7)
        response = await ask(broker, handle_stop_replica, stop_replica(version), StopReplicaResponse, version)
        assert [error.error_code for error in response.partition_errors] == [ErrorCode.NONE]
        assert broker.replica_manager.partition(("t", 0)) is None


@pytest.mark.parametrize("version", range(9))
async def test_update_metadata_replaces_the_image(version: int) -> None:
    async with running_broker() as broker:
        request = update_metadata(version)
        response = await ask(broker, handle_update_metadata, request, UpdateMetadataResponse, version)
        assert response.error_code == ErrorCode.NONE
        image = broker.metadata.image
        assert image.controller_id == 2
        assert image.topics["t"].partitions[0].leader == 2
        endpoint = image.endpoint(2, "PLAINTEXT")
        assert endpoint is not None
        assert (endpoint.host, endpoint.port) == ("h", 9)


@pytest.mark.parametrize("version", [1, 2])
async def test_update_metadata_with_unknown_security_protocol_is_invalid_and_changes_nothing(version: int) -> None:
    async with running_broker() as broker:
        request = update_metadata(version)
        request.live_brokers[0].endpoints[0].security_protocol = 99
        response = await ask(broker, handle_update_metadata, request, UpdateMetadataResponse, version)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "t" not in broker.metadata.image.topics
        assert broker.metadata.controller_epoch < EPOCH


Order = tuple[ApiHandler[Any], Message, type[Message], int]


def orders(broker_epoch: int) -> list[Order]:
    return [
        (handle_leader_and_isr, leader_and_isr(7, broker_epoch=broker_epoch), LeaderAndIsrResponse, 7),
        (handle_stop_replica, stop_replica(4, broker_epoch=broker_epoch), StopReplicaResponse, 4),
        (handle_update_metadata, update_metadata(8, broker_epoch=broker_epoch), UpdateMetadataResponse, 8),
    ]


async def codes(broker: Broker, requested: list[Order]) -> list[ErrorCode]:
    return [
        ErrorCode((await ask(broker, handler, request, response, version)).error_code)  # type: ignore[attr-defined]
        for handler, request, response, version in requested
    ]


async def test_control_request_for_an_earlier_incarnation_is_stale_broker_epoch() -> None:
    """B63: an older one is refused; a newer one the broker may not know of yet; -1 is not said."""
    async with running_broker() as broker:
        broker.controller.broker_epoch = 50
        assert await codes(broker, orders(49)) == [ErrorCode.STALE_BROKER_EPOCH] * 3
        assert not broker.metadata.topic_exists("t")
        for incarnation in (50, 51, -1):
            assert await codes(broker, orders(incarnation)) == [ErrorCode.NONE] * 3


async def test_control_request_of_an_unauthorized_client_is_refused() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies({Operation.CLUSTER_ACTION})
        assert await codes(broker, orders(-1)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3
        requested: list[Order] = [
            (handle_alter_partition, AlterPartitionRequest(), AlterPartitionResponse, 3),
            (handle_controlled_shutdown, ControlledShutdownRequest(), ControlledShutdownResponse, 3),
        ]
        assert await codes(broker, requested) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2


async def test_reassignment_and_election_need_alter_on_the_cluster() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies({Operation.ALTER, Operation.DESCRIBE})
        elect = ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic="t", partitions=[0])])
        requested: list[Order] = [
            (handle_elect_leaders, elect, ElectLeadersResponse, 2),
            (
                handle_alter_partition_reassignments,
                AlterPartitionReassignmentsRequest(),
                AlterPartitionReassignmentsResponse,
                1,
            ),
            (
                handle_list_partition_reassignments,
                ListPartitionReassignmentsRequest(),
                ListPartitionReassignmentsResponse,
                0,
            ),
        ]
        assert await codes(broker, requested) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3
        response = await ask(broker, handle_elect_leaders, elect, ElectLeadersResponse, 0)
        (result,) = response.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_elect_leaders_of_unknown_type_is_refused() -> None:
    async with running_broker() as broker:
        request = ElectLeadersRequest(election_type=5, topic_partitions=None)
        response = await ask(broker, handle_elect_leaders, request, ElectLeadersResponse, 2)
        assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_impossible_reassignment_returns_its_reason() -> None:
    async with running_broker() as broker:
        partition = ReassignablePartition(partition_index=0, replicas=[1])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[partition])])
        response = AlterPartitionReassignmentsResponse
        received = await ask(broker, handle_alter_partition_reassignments, request, response, 1)
        (result,) = received.responses[0].partitions
        assert (result.error_code, result.error_message) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The partition does not exist.",
        )


def test_inter_broker_apis_are_served_in_clusters_only() -> None:
    alone = {handler.api_key for handler in all_handlers()}
    member = {handler.api_key for handler in all_handlers(clustered=True)}
    assert member - alone == {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
    }
