"""DescribeAcls, CreateAcls and DeleteAcls on a broker without an authorizer, over every version."""

import pytest

from oncelog.broker.handlers.create_acls import handle_create_acls
from oncelog.broker.handlers.delete_acls import handle_delete_acls
from oncelog.broker.handlers.describe_acls import handle_describe_acls
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tests.unit.broker.handlers.administration import Denies, ask, running_broker

VERSIONS = range(1, 4)


@pytest.mark.parametrize("version", VERSIONS)
async def test_describe_acls_without_authorizer_returns_security_disabled(version: int) -> None:
    async with running_broker() as broker:
        response = await ask(broker, handle_describe_acls, DescribeAclsRequest(), DescribeAclsResponse, version)
        response = decode(DescribeAclsResponse, version, encode(response, version))
        assert response.error_code == ErrorCode.SECURITY_DISABLED
        assert response.error_message == "No Authorizer is configured on the broker"
        assert response.resources == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_create_acls_without_authorizer_returns_security_disabled_for_each(version: int) -> None:
    async with running_broker() as broker:
        request = CreateAclsRequest(creations=[AclCreation(resource_name="a"), AclCreation(resource_name="b")])
        response = await ask(broker, handle_create_acls, request, CreateAclsResponse, version)
        response = decode(CreateAclsResponse, version, encode(response, version))
        assert [(each.error_code, each.error_message) for each in response.results] == [
            (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        ] * 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_delete_acls_without_authorizer_returns_security_disabled_for_each(version: int) -> None:
    async with running_broker() as broker:
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()])
        response = await ask(broker, handle_delete_acls, request, DeleteAclsResponse, version)
        response = decode(DeleteAclsResponse, version, encode(response, version))
        assert [(each.error_code, each.error_message, each.matching_acls) for each in response.filter_results] == [
            (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.", [])
        ] * 2


async def test_acl_requests_of_an_unauthorized_client_are_refused_first() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies([Operation.DESCRIBE, Operation.ALTER])
        described = await ask(broker, handle_describe_acls, DescribeAclsRequest(), DescribeAclsResponse)
        assert described.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        creation = CreateAclsRequest(creations=[AclCreation()])
        created = await ask(broker, handle_create_acls, creation, CreateAclsResponse)
        assert [each.error_code for each in created.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        deletion = DeleteAclsRequest(filters=[DeleteAclsFilter()])
        deleted = await ask(broker, handle_delete_acls, deletion, DeleteAclsResponse)
        assert [each.error_code for each in deleted.filter_results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
