"""Asking several coordinators at once: each key has a response, and one that moved is looked up again."""

from oncelog.clients.admin.group_offsets import CommittedOffset, committed_offsets_of_groups
from oncelog.clients.admin.groups import MemberToRemove, delete_groups, describe_groups, remove_members
from oncelog.clients.errors import Refusal, VersionNotSupported
from oncelog.clients.routes import Coordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from oncelog.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from oncelog.protocol.schema import Message, Versions
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.coordinator_scripts import ORDERS, coordinated_by
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of, in_turn


class Homes:
    """FindCoordinator: which broker has which group."""

    def __init__(self, homes: dict[str, ScriptedBroker]) -> None:
        self.homes = homes

    def __call__(self, request: Message) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        return FindCoordinatorResponse(coordinators=[self._found(key) for key in request.coordinator_keys])

    def _found(self, key: str) -> FoundCoordinator:
        broker = self.homes.get(key)
        if broker is None:
            return FoundCoordinator(key=key, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return FoundCoordinator(key=key, node_id=broker.node_id, host=broker.address.host, port=broker.address.port)


def described(request: Message) -> DescribeGroupsResponse:
    assert isinstance(request, DescribeGroupsRequest)
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, group_state="Stable") for group_id in request.groups]
    )


def states(responses: object) -> dict[str, str]:
    assert isinstance(responses, dict)
    return {key: str(each.error.name if isinstance(each, Refusal) else each.state) for key, each in responses.items()}


@in_virtual_time
async def test_coordinators_are_found_with_one_request_and_called_once_each() -> None:
    one, two = (
        ScriptedBroker({DescribeGroupsRequest: described}),
        ScriptedBroker({DescribeGroupsRequest: described}, node_id=2),
    )
    one.script[FindCoordinatorRequest] = Homes({"a": one, "b": two, "c": one})
    async with cluster_of(one, two) as cluster:
        responses = await describe_groups(cluster, ["a", "b", "c", "denied"])
        assert states(responses) == {
            "a": "Stable",
            "b": "Stable",
            "c": "Stable",
            "denied": "GROUP_AUTHORIZATION_FAILED",
        }
        assert [len(broker.seen(DescribeGroupsRequest)) for broker in (one, two)] == [1, 1]
        assert len(one.seen(FindCoordinatorRequest)) == 1


@in_virtual_time
async def test_broker_without_batched_lookup_gets_one_lookup_for_each_key() -> None:
    broker = ScriptedBroker({DescribeGroupsRequest: described})
    broker.versions[FindCoordinatorRequest.api_key or 0] = Versions(0, 3)

    def found(request: Message) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=1, host=broker.address.host, port=broker.address.port)

    broker.script[FindCoordinatorRequest] = found
    async with cluster_of(broker) as cluster:
        assert states(await describe_groups(cluster, ["a", "b"])) == {"a": "Stable", "b": "Stable"}
        keys = [each.key for each in broker.requests if isinstance(each, FindCoordinatorRequest)]
        assert keys == ["a", "b"]


@in_virtual_time
async def test_group_that_moved_is_retried_at_its_new_coordinator_alone() -> None:
    one, two = ScriptedBroker({}), ScriptedBroker({DescribeGroupsRequest: described}, node_id=2)
    homes = Homes({"a": one, "b": one})
    one.script[FindCoordinatorRequest] = two.script[FindCoordinatorRequest] = homes

    def moved(request: Message) -> DescribeGroupsResponse:
        homes.homes["b"] = two
        groups = [
            DescribedGroup(group_id="a", group_state="Empty"),
            DescribedGroup(group_id="b", error_code=ErrorCode.NOT_COORDINATOR),
        ]
        return DescribeGroupsResponse(groups=groups)

    one.script[DescribeGroupsRequest] = moved
    async with cluster_of(one, two) as cluster:
        assert states(await describe_groups(cluster, ["a", "b"])) == {"a": "Empty", "b": "Stable"}
        (requested,) = two.seen(DescribeGroupsRequest)
        assert isinstance(requested, DescribeGroupsRequest)
        assert requested.groups == ["b"]
        assert len(one.seen(DescribeGroupsRequest)) == 1


@in_virtual_time
async def test_key_with_lasting_transient_error_is_refused_when_the_time_is_up() -> None:
    broker = ScriptedBroker({})
    loading = DescribedGroup(group_id="a", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.script |= {
        FindCoordinatorRequest: lambda request: coordinated_by(broker)(request),
        DescribeGroupsRequest: DescribeGroupsResponse(groups=[loading]),
    }
    async with cluster_of(broker) as cluster:
        assert states(await describe_groups(cluster, ["a"])) == {"a": "COORDINATOR_LOAD_IN_PROGRESS"}
        assert len(broker.seen(DescribeGroupsRequest)) > 10


@in_virtual_time
async def test_lost_connection_is_reopened_and_missing_result_is_refused() -> None:
    broker = ScriptedBroker({})
    deleted = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="a", error_code=ErrorCode.NON_EMPTY_GROUP)])
    broker.script |= {
        FindCoordinatorRequest: lambda request: coordinated_by(broker)(request),
        DeleteGroupsRequest: in_turn(Reaction.CLOSE, deleted),
    }
    async with cluster_of(broker) as cluster:
        outcomes = await delete_groups(cluster, ["a", "b"])
        assert outcomes["a"] == Refusal(error=ErrorCode.NON_EMPTY_GROUP)
        assert outcomes["b"] is not None
        assert outcomes["b"].error is ErrorCode.UNKNOWN_SERVER_ERROR


@in_virtual_time
async def test_group_that_is_dead_does_not_exist() -> None:
    broker = ScriptedBroker({})
    broker.script |= {
        FindCoordinatorRequest: lambda request: coordinated_by(broker)(request),
        DescribeGroupsRequest: DescribeGroupsResponse(groups=[DescribedGroup(group_id="a", group_state="Dead")]),
    }
    async with cluster_of(broker) as cluster:
        assert states(await describe_groups(cluster, ["a"])) == {"a": "GROUP_ID_NOT_FOUND"}


@in_virtual_time
async def test_offsets_of_several_groups_return_unstable_ones_without_waiting() -> None:
    broker = ScriptedBroker({})
    partitions = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, metadata="m"),
        OffsetFetchResponsePartitions(partition_index=1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT),
        OffsetFetchResponsePartitions(partition_index=2, committed_offset=-1),
    ]
    groups = [
        OffsetFetchResponseGroup(
            group_id="a", topics=[OffsetFetchResponseTopics(name="orders", partitions=partitions)]
        ),
        OffsetFetchResponseGroup(group_id="b", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]
    broker.script |= {
        FindCoordinatorRequest: lambda request: coordinated_by(broker)(request),
        OffsetFetchRequest: OffsetFetchResponse(groups=groups),
    }
    async with cluster_of(broker) as cluster:
        responses = await committed_offsets_of_groups(cluster, {"a": [ORDERS], "b": None}, require_stable=True)
        found = responses["a"]
        assert not isinstance(found, Refusal)
        assert found.found == {ORDERS: CommittedOffset(5, "m")}
        assert found.failed == {TopicPartition("orders", 1): ErrorCode.UNSTABLE_OFFSET_COMMIT}
        assert responses["b"] == Refusal(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        (request,) = broker.seen(OffsetFetchRequest)
        assert isinstance(request, OffsetFetchRequest)
        assert request.require_stable
        requested = {group.group_id: group.topics for group in request.groups}
        assert requested["b"] is None
        assert [(topic.name, topic.partition_indexes) for topic in requested["a"] or ()] == [("orders", [0])]


@in_virtual_time
async def test_broker_without_offsets_of_several_groups_gets_no_request() -> None:
    broker = ScriptedBroker({OffsetFetchRequest: OffsetFetchResponse()})
    broker.versions[OffsetFetchRequest.api_key or 0] = Versions(1, 7)
    broker.script[FindCoordinatorRequest] = lambda request: coordinated_by(broker)(request)
    async with cluster_of(broker) as cluster:
        responses = await committed_offsets_of_groups(cluster, {"a": None, "b": None})
        for refused in responses.values():
            assert isinstance(refused, Refusal)
            assert refused.error is ErrorCode.UNSUPPORTED_VERSION
            assert "only versions 1 to 7 of OFFSET_FETCH" in str(refused)
            assert isinstance(refused.as_error("group a"), VersionNotSupported)
        assert not broker.seen(OffsetFetchRequest)


@in_virtual_time
async def test_members_are_removed_by_either_id_and_each_has_its_result() -> None:
    broker = ScriptedBroker({})
    static, dynamic = MemberToRemove(group_instance_id="shelf-1"), MemberToRemove(member_id="m-1")
    members = [
        MemberResponse(member_id="m-1", group_instance_id=None, error_code=ErrorCode.UNKNOWN_MEMBER_ID),
        MemberResponse(member_id="", group_instance_id="shelf-1"),
    ]
    broker.script |= {
        FindCoordinatorRequest: lambda request: coordinated_by(broker)(request),
        LeaveGroupRequest: LeaveGroupResponse(members=members),
    }
    async with cluster_of(broker) as cluster:
        outcomes = await remove_members(cluster, "billing", [static, dynamic], reason="maintenance")
        assert outcomes == {static: None, dynamic: Refusal(error=ErrorCode.UNKNOWN_MEMBER_ID)}
        (request,) = broker.seen(LeaveGroupRequest)
        assert isinstance(request, LeaveGroupRequest)
        assert {member.reason for member in request.members} == {"maintenance"}


@in_virtual_time
async def test_known_coordinator_is_not_looked_up_again() -> None:
    broker = ScriptedBroker({DescribeGroupsRequest: described})
    broker.script[FindCoordinatorRequest] = lambda request: coordinated_by(broker)(request)
    async with cluster_of(broker) as cluster:
        assert await cluster.coordinator(Coordinator.of_group("a")) == 1
        await describe_groups(cluster, ["a", "b"])
        keys = [each.coordinator_keys for each in broker.requests if isinstance(each, FindCoordinatorRequest)]
        assert keys == [["a"], ["b"]]
