"""DescribeAcls, CreateAcls and DeleteAcls, over every version; the lists that they keep, and what these decide."""

from typing import Any

import pytest

from oncelog.broker.dispatch.request import ANONYMOUS, Principal
from oncelog.broker.handlers.create_acls import handle_create_acls
from oncelog.broker.handlers.delete_acls import handle_delete_acls
from oncelog.broker.handlers.describe_acls import handle_describe_acls
from oncelog.broker.handlers.list_offsets import handle_list_offsets
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.acl import AclPermissionType, AclResourceType, PatternType
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.unit.broker.handlers.administration import Denies, ask, new_disk, running_broker
from tests.unit.broker.test_turns_of_all_handlers import MOST_LINES
from tests.unit.broker.turns import longest_turn

AUTHORIZER = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS;User:admin",
}
ALICE = Principal("User", "alice")
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


def creation(name: str = "orders", **fields: Any) -> AclCreation:
    """Alice may read the topic, unless ``fields`` say otherwise."""
    given = {
        "resource_type": AclResourceType.TOPIC,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": AclPermissionType.ALLOW,
    }
    return AclCreation(resource_name=name, **{**given, **fields})


async def create(broker: Broker, *creations: AclCreation, version: int = 3) -> list[ErrorCode]:
    request = CreateAclsRequest(creations=list(creations))
    response = await ask(broker, handle_create_acls, request, CreateAclsResponse, version)
    response = decode(CreateAclsResponse, version, encode(response, version))
    return [ErrorCode(each.error_code) for each in response.results]


def everything(**fields: Any) -> DescribeAclsRequest:
    given = {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
    return DescribeAclsRequest(**{**given, **fields})


async def described(broker: Broker, version: int = 3, **fields: Any) -> list[str]:
    response = await ask(broker, handle_describe_acls, everything(**fields), DescribeAclsResponse, version)
    response = decode(DescribeAclsResponse, version, encode(response, version))
    assert response.error_code == ErrorCode.NONE
    return sorted(
        f"{AclResourceType(each.resource_type).name}:{PatternType(each.pattern_type).name}:{each.resource_name} "
        f"{AclPermissionType(acl.permission_type).name} {acl.principal} {Operation(acl.operation).name} from {acl.host}"
        for each in response.resources
        for acl in each.acls
    )


async def delete(broker: Broker, *filters: DeleteAclsFilter, version: int = 3) -> list[tuple[ErrorCode, list[str]]]:
    request = DeleteAclsRequest(filters=list(filters))
    response = await ask(broker, handle_delete_acls, request, DeleteAclsResponse, version)
    response = decode(DeleteAclsResponse, version, encode(response, version))
    return [
        (ErrorCode(each.error_code), [f"{acl.resource_name} {acl.principal}" for acl in each.matching_acls])
        for each in response.filter_results
    ]


def of_topic(name: str | None, **fields: Any) -> DeleteAclsFilter:
    given = {
        "resource_type_filter": AclResourceType.TOPIC,
        "resource_name_filter": name,
        "pattern_type_filter": PatternType.LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
    return DeleteAclsFilter(**{**given, **fields})


@pytest.mark.parametrize("version", VERSIONS)
async def test_acls_are_created_described_and_deleted(version: int) -> None:
    async with running_broker(**AUTHORIZER) as broker:
        prefixed = creation("ord", resource_pattern_type=PatternType.PREFIXED, operation=Operation.WRITE)
        assert await create(broker, creation(), creation(), prefixed, version=version) == [ErrorCode.NONE] * 3
        assert await described(broker, version) == [
            "TOPIC:LITERAL:orders ALLOW User:alice READ from *",
            "TOPIC:PREFIXED:ord ALLOW User:alice WRITE from *",
        ]
        assert await described(broker, version, pattern_type_filter=PatternType.MATCH, resource_name_filter="orde") == [
            "TOPIC:PREFIXED:ord ALLOW User:alice WRITE from *"
        ]
        deleted = await delete(broker, of_topic("orders"), of_topic("elsewhere"), version=version)
        assert deleted == [(ErrorCode.NONE, ["orders User:alice"]), (ErrorCode.NONE, [])]
        assert await described(broker, version) == ["TOPIC:PREFIXED:ord ALLOW User:alice WRITE from *"]


async def may_describe(broker: Broker, principal: Principal = ALICE) -> bool:
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    )
    response = await ask(broker, handle_list_offsets, request, ListOffsetsResponse, principal=principal)
    return response.topics[0].partitions[0].error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_acl_decides_from_its_response_on_and_after_a_restart() -> None:
    disk = new_disk()
    async with running_broker(disk, **AUTHORIZER) as broker:
        assert not await may_describe(broker)
        await create(broker, creation())
        assert await may_describe(broker)
        assert await may_describe(broker, ANONYMOUS)
        assert not await may_describe(broker, Principal("User", "bob"))
    async with running_broker(disk, **AUTHORIZER) as broker:
        assert await may_describe(broker)
        await delete(broker, of_topic("orders"))
        assert not await may_describe(broker)
    async with running_broker(disk, **AUTHORIZER) as broker:
        assert not await may_describe(broker)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": "a\0b"},
        {"name": ".."},
        {"resource_type": AclResourceType.CLUSTER, "name": "*"},
        {"resource_type": AclResourceType.CLUSTER, "name": "cluster"},
        {"resource_type": AclResourceType.ANY},
        {"resource_type": AclResourceType.UNKNOWN},
        {"resource_type": 99},
        {"resource_pattern_type": PatternType.ANY},
        {"resource_pattern_type": PatternType.MATCH},
        {"resource_pattern_type": PatternType.UNKNOWN},
        {"operation": Operation.ANY},
        {"operation": Operation.UNKNOWN},
        {"operation": 77},
        {"permission_type": AclPermissionType.ANY},
        {"permission_type": AclPermissionType.UNKNOWN},
        {"principal": "alice"},
        {"principal": ""},
        {"principal": ":alice"},
    ],
    ids=repr,
)
async def test_creation_that_makes_no_sense_is_refused_alone(fields: dict[str, Any]) -> None:
    async with running_broker(**AUTHORIZER) as broker:
        errors = await create(broker, creation(**fields), creation("other"))
        assert errors == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert await described(broker) == ["TOPIC:LITERAL:other ALLOW User:alice READ from *"]


async def test_entries_that_have_no_room_in_a_znode_are_refused() -> None:
    async with running_broker(**AUTHORIZER) as broker:
        names = [f"User:{number}{'x' * 1_000}" for number in range(1_100)]
        errors = await create(broker, *(creation(principal=name) for name in names))
        assert set(errors) == {ErrorCode.INVALID_REQUEST}
        assert await described(broker) == []


async def test_more_changes_than_one_request_may_make_are_refused() -> None:
    async with running_broker(**AUTHORIZER) as broker:
        assert set(await create(broker, *[creation()] * 10_001)) == {ErrorCode.INVALID_REQUEST}
        assert await create(broker, *(creation(f"t{number}") for number in range(10_000))) == [ErrorCode.NONE] * 10_000
        assert await create(broker, creation("one-more")) == [ErrorCode.NONE]
        assert await delete(broker, of_topic(None)) == [(ErrorCode.INVALID_REQUEST, [])]
        assert len(await described(broker)) == 10_001


async def test_large_acl_requests_keep_the_loop_for_milliseconds_only() -> None:
    """In lines of Python, as ``test_turns_of_all_handlers`` counts them without an authorizer."""
    async with running_broker(**AUTHORIZER) as broker:
        creations = [creation(f"t{number}") for number in range(3_000)]
        for make in (
            lambda: ask(broker, handle_create_acls, CreateAclsRequest(creations=creations), CreateAclsResponse),
            lambda: ask(broker, handle_describe_acls, everything(), DescribeAclsResponse),
            lambda: ask(broker, handle_delete_acls, DeleteAclsRequest(filters=[of_topic(None)]), DeleteAclsResponse),
        ):
            _, lines = await longest_turn(make)
            assert lines <= MOST_LINES


async def test_filter_of_an_unknown_type_is_refused() -> None:
    async with running_broker(**AUTHORIZER) as broker:
        await create(broker, creation())
        response = await ask(broker, handle_describe_acls, everything(operation=99), DescribeAclsResponse)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        deleted = await delete(broker, of_topic(None, permission_type=0), of_topic("orders"))
        assert deleted == [(ErrorCode.INVALID_REQUEST, []), (ErrorCode.NONE, ["orders User:alice"])]
