"""Access control lists through the admin client: what is sent, and what comes of the responses."""

from oncelog.clients.admin.acls import create_acls, delete_acls, describe_acls
from oncelog.clients.errors import Refusal
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from oncelog.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from oncelog.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of


def binding(name: str) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResourceType.TOPIC, name, PatternType.PREFIXED),
        AccessControlEntry("User:alice", "10.0.0.7", AclOperation.READ, AclPermissionType.DENY),
    )


def of_name(name: str) -> AclBindingFilter:
    return AclBindingFilter(AclResourceType.TOPIC, name, PatternType.PREFIXED)


class Lists:
    """A broker that refuses lists of topics that begin with b, the first of them for a while."""

    def __init__(self) -> None:
        self.passing = [ErrorCode.REQUEST_TIMED_OUT]

    def create(self, request: Message) -> Message:
        assert isinstance(request, CreateAclsRequest)
        results = []
        for each in request.creations:
            error = ErrorCode.INVALID_REQUEST if each.resource_name.startswith("b") else ErrorCode.NONE
            if each.resource_name == "slow" and self.passing:
                error = self.passing.pop()
            results.append(AclCreationResult(error_code=error, error_message="no" if error else None))
        return CreateAclsResponse(results=results)

    def delete(self, request: Message) -> Message:
        assert isinstance(request, DeleteAclsRequest)
        results = []
        for each in request.filters:
            if each.resource_name_filter == "bad":
                results.append(DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message="no"))
                continue
            deleted = DeleteAclsMatchingAcl(
                resource_type=2, resource_name="a", pattern_type=4, principal="User:alice", host="10.0.0.7",
                operation=3, permission_type=2,
            )  # fmt: skip
            results.append(DeleteAclsFilterResult(error_message=None, matching_acls=[deleted]))
        return DeleteAclsResponse(filter_results=results)

    def describe(self, request: Message) -> Message:
        assert isinstance(request, DescribeAclsRequest)
        if request.resource_name_filter == "secret":
            return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
        deny = AclDescription(principal="User:alice", host="10.0.0.7", operation=3, permission_type=2)
        newer = AclDescription(principal="User:alice", host="*", operation=99, permission_type=3)
        resource = DescribeAclsResource(resource_type=2, resource_name="a", pattern_type=4, acls=[deny, newer])
        return DescribeAclsResponse(error_message=None, resources=[resource])

    def broker(self) -> ScriptedBroker:
        return ScriptedBroker(
            {CreateAclsRequest: self.create, DeleteAclsRequest: self.delete, DescribeAclsRequest: self.describe}
        )


@in_virtual_time
async def test_create_acls_has_an_outcome_for_each_and_retries_only_what_passes() -> None:
    async with cluster_of(broker := Lists().broker()) as cluster:
        outcomes = await create_acls(cluster, [binding("a"), binding("bad"), binding("slow")])
        refused = Refusal(error=ErrorCode.INVALID_REQUEST, message="no")
        assert outcomes == {binding("a"): None, binding("bad"): refused, binding("slow"): None}
        sent = [[each.resource_name for each in request.creations] for request in broker.seen(CreateAclsRequest)]  # type: ignore[attr-defined]
        assert sent == [["a", "bad", "slow"], ["slow"]]


@in_virtual_time
async def test_delete_acls_names_what_each_filter_deleted() -> None:
    async with cluster_of(Lists().broker()) as cluster:
        results = await delete_acls(cluster, [of_name("a"), of_name("bad")])
        assert results[of_name("a")] == [binding("a")]
        assert results[of_name("bad")] == Refusal(error=ErrorCode.INVALID_REQUEST, message="no")


@in_virtual_time
async def test_describe_acls_shows_what_it_does_not_know_as_unknown() -> None:
    async with cluster_of(broker := Lists().broker()) as cluster:
        found = await describe_acls(cluster)
        assert [each.entry.operation for each in found] == [AclOperation.UNKNOWN, AclOperation.READ]
        assert found[1] == binding("a")
        (request,) = broker.seen(DescribeAclsRequest)
        assert isinstance(request, DescribeAclsRequest)
        assert (request.resource_type_filter, request.resource_name_filter, request.operation) == (1, None, 1)
