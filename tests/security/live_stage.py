"""``LiveStage``: a broker in a process of its own, its users, and access control lists that are set by requests."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from oncelog.broker.dispatch.request import ANONYMOUS, Principal
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.acl import AclBinding
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.protocol.sasl.login import SaslLogin
from tests.conformance.acl_stage import ALICE, BOB, SUPER, AclStage
from tests.unit.protocol.built import built
from tests.unit.protocol.declared import message_classes

PASSWORD: Final = "pw"
_ANY: Final = 1
_EVERYTHING: Final = DeleteAclsFilter(
    resource_type_filter=_ANY,
    resource_name_filter=None,
    pattern_type_filter=_ANY,
    principal_filter=None,
    host_filter=None,
    operation=_ANY,
    permission_type=_ANY,
)


class LiveStage(AclStage):
    """A broker in a process of its own, with a connection for each user."""

    def __init__(self, connections: Mapping[Principal, Connection]) -> None:
        super().__init__()
        self.connections = connections

    async def topic_id(self, name: str) -> bytes:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response = await self.connections[ANONYMOUS].send(request, MetadataResponse, at_least=10)
        return response.topics[0].topic_id

    async def send(self, api: str, version: int, fields: Mapping[str, Any], principal: Principal) -> Any:
        classes = message_classes()
        request = built(classes[f"{api}Request"], fields)
        connection = self.connections[principal]
        return await connection.send(request, classes[f"{api}Response"], at_least=version, at_most=version)

    async def replace_rules(self, rules: list[AclBinding]) -> None:
        await set_acls(self.connections[ANONYMOUS], rules)


async def set_acls(admin: Connection, rules: list[AclBinding]) -> None:
    """Have these access control lists and no others."""
    await admin.send(DeleteAclsRequest(filters=[_EVERYTHING]), DeleteAclsResponse)
    await create_acls(admin, rules)


async def create_acls(admin: Connection, rules: Iterable[AclBinding]) -> None:
    """Add access control lists."""
    creations = [
        AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
        for pattern, entry in rules
    ]
    response = await admin.send(CreateAclsRequest(creations=creations), CreateAclsResponse)
    assert [result.error_code for result in response.results] == [ErrorCode.NONE] * len(creations), response


async def connected(admin_port: int, user_port: int) -> dict[Principal, Connection]:
    """Return a connection without a user, and one of each user."""
    connections = {ANONYMOUS: await connect(Address("127.0.0.1", admin_port))}
    for user in (ALICE, BOB, SUPER):
        login = SaslLogin(mechanism="PLAIN", username=user.name, password=PASSWORD)
        connections[user] = await connect(Address("127.0.0.1", user_port), sasl=SaslClient(login))
    return connections


def settings_of(admin_port: int, user_port: int) -> list[str]:
    """Return the settings of a broker with these users, and lists that can be changed at the first port."""
    users = " ".join(f'user_{user.name}="{PASSWORD}"' for user in (ALICE, BOB, SUPER))
    return [
        f"listeners=PLAINTEXT://127.0.0.1:{admin_port},SASL_PLAINTEXT://127.0.0.1:{user_port}",
        "sasl.enabled.mechanisms=PLAIN",
        f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS;User:super",
        "delegation.token.secret.key=sesame-open",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.num.partitions=1",
    ]
