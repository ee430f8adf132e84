"""Each request of the table in each state of its access control lists, on a real broker.

A cell is about one of the needs of a request: the state is that of its rights, and everything else is allowed.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.acl import AclOperation as Op
from oncelog.protocol.acl import AclPermissionType, PatternType
from oncelog.protocol.acl import AclResourceType as Type
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.schema import Message
from tests.processes import OncelogProcess, free_port
from tests.scenarios.sasl_states import error_codes
from tests.security.authorization_table import CLUSTER, DENIED, GROUP, NAMES, ROWS, TOPIC, Need, Row
from tests.security.cell import Cell
from tests.unit.protocol.declared import message_classes

MOST_ATTEMPTS: Final = 500
ALLOWED: Final = "allowed"
ALICE: Final = "User:alice"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
_DENIALS: Final = frozenset(DENIED.values())
_IMPLIED_BY: Final = {
    Op.DESCRIBE: (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER),
    Op.DESCRIBE_CONFIGS: (Op.ALTER_CONFIGS,),
}
_WRONG: Final = {Op.CREATE: Op.DELETE}
"""Another operation that does not imply one; CREATE by default."""


class Entry(NamedTuple):
    """An entry of the lists."""

    type: Type
    name: str
    operation: Op
    permission: AclPermissionType = ALLOW
    principal: str = ALICE
    host: str = "*"
    pattern: PatternType = PatternType.LITERAL


class State(NamedTuple):
    """The rights to what a need is about."""

    name: str
    entries: tuple[Entry, ...]
    is_allowed: bool
    user: str = "alice"


def states_of(need: Need) -> Iterator[State]:
    """Yield every state, and whether the request is allowed then."""
    kind, name, operation = need.type, NAMES[need.type], need.operation
    right = Entry(kind, name, operation)
    wrong = _WRONG.get(operation, Op.CREATE)
    yield State("no right", (), False)
    yield State("a right to something else", (right._replace(operation=wrong),), False)
    yield State("the right", (right,), True)
    yield State("the right to its whole name as a prefix", (right._replace(pattern=PatternType.PREFIXED),), True)
    yield State("every operation", (right._replace(operation=Op.ALL),), True)
    yield State("the right for every user", (right._replace(principal="User:*"),), True)
    yield State("the right for a user in another case", (right._replace(principal="User:Alice"),), False)
    yield State("the right for another kind of principal", (right._replace(principal="Group:alice"),), False)
    yield State("the right from this host", (right._replace(host="127.0.0.1"),), True)
    yield State("the right from another host", (right._replace(host="10.9.9.9"),), False)
    yield State("a denial beside the right", (right, right._replace(permission=DENY)), False)
    denial_for_all = right._replace(permission=DENY, principal="User:*", operation=Op.ALL)
    yield State("a denial of everything to every user", (right, denial_for_all), False)
    yield State("a denial to another user", (right, right._replace(permission=DENY, principal="User:bob")), True)
    yield State("a denial from another host", (right, right._replace(permission=DENY, host="10.9.9.9")), True)
    yield State("a denial as a super user", (denial_for_all,), True, "super")
    if kind is not Type.CLUSTER:  # Which has one name.
        prefix = right._replace(name=name[:4], pattern=PatternType.PREFIXED)
        yield State("the right by a prefix", (prefix,), True)
        longer = right._replace(name=f"{name}x", pattern=PatternType.PREFIXED)
        yield State("a prefix that is longer", (longer,), need_of_any(need))
        yield State("a denial by a prefix", (right, prefix._replace(permission=DENY)), False)
        yield State("the right to every name", (right._replace(name="*"),), True)
        yield State("a denial of every name", (right, right._replace(name="*", permission=DENY)), False)
        yield State("the right to another name", (right._replace(name="cells-u"),), need_of_any(need))
    for other in _IMPLIED_BY.get(operation, ()):
        yield State(f"{other.name}, which implies it", (right._replace(operation=other),), True)
        denial = right._replace(operation=other, permission=DENY)
        yield State(f"a denial of {other.name}, which implies nothing", (right, denial), True)
    if operation not in (Op.DESCRIBE, Op.DESCRIBE_CONFIGS):
        yield State("a denial of DESCRIBE", (right, right._replace(operation=Op.DESCRIBE, permission=DENY)), True)


def need_of_any(need: Need) -> bool:
    """Return whether a right to any resource of the type is enough."""
    return need.type is Type.TOPIC and need.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def built(cls: type[Message], fields: dict[str, Any]) -> Message:
    """Return a message whose structures are given by their fields."""
    values = {}
    for name, value in fields.items():
        (declared,) = (each for each in cls.fields if each.name == name)
        struct = None if declared.element is None else declared.element.struct
        values[name] = [built(struct, each) for each in value] if struct is not None and value is not None else value
    return cls(**values)


class Broker:
    """The broker's users."""

    def __init__(self, admin: Connection, users: dict[str, Connection]) -> None:
        self._admin = admin
        self._users = users

    async def set_lists(self, entries: list[Entry]) -> None:
        everything = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        await self._admin.send(DeleteAclsRequest(filters=[everything]), DeleteAclsResponse)
        creations = [
            AclCreation(
                resource_type=each.type,
                resource_name=each.name,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in entries
        ]
        response = await self._admin.send(CreateAclsRequest(creations=creations), CreateAclsResponse)
        assert not any(result.error_code for result in response.results), response

    async def commit_offset(self) -> None:
        """Have the group of the table commit an offset of its topic."""
        row = next(row for row in ROWS if row.request == "OffsetCommit")
        request = built(OffsetCommitRequest, row.fields)
        for _ in range(MOST_ATTEMPTS):
            response = await self._admin.send(request, OffsetCommitResponse, at_most=row.version)
            if set(error_codes(response, row.version)) == {ErrorCode.NONE}:
                return
            await self._admin.send(FindCoordinatorRequest(key=GROUP), FindCoordinatorResponse, at_most=3)
        raise AssertionError(f"no offset is committed: {response}")

    async def denials(self, user: str, row: Row) -> set[ErrorCode]:
        """Send a request, and return the refusals of its response."""
        classes = message_classes()
        request = built(classes[f"{row.request}Request"], row.fields)
        response = await self._users[user].send(
            request, classes[f"{row.request}Response"], at_least=row.version, at_most=row.version
        )
        return set(error_codes(response, row.version)) & _DENIALS


async def _try_all(ports: tuple[int, int]) -> list[Cell]:
    admin = await connect(Address("127.0.0.1", ports[0]))
    users = {
        name: await connect(
            Address("127.0.0.1", ports[1]), sasl=SaslClient(SaslLogin(mechanism="PLAIN", username=name, password="pw"))
        )
        for name in ("alice", "super")
    }
    broker = Broker(admin, users)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    await admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse)
    cells = []
    for row in ROWS:
        for need in row.needs:
            others = [Entry(each.type, NAMES[each.type], each.operation) for each in row.needs if each is not need]
            for state in states_of(need):
                await broker.set_lists([*others, *state.entries])
                if row.has_group:
                    await broker.commit_offset()
                found = await broker.denials(state.user, row)
                expected = ALLOWED if state.is_allowed else need.error.name
                title = f"{row.name}, {need.type.name} {need.operation.name}: {state.name}"
                cells.append(Cell(title, expected, "+".join(sorted(each.name for each in found)) or ALLOWED))
    for connection in (admin, *users.values()):
        connection.close()
    return cells


def authorization_cells(directory: Path) -> list[Cell]:
    """Try all of them on one broker."""
    ports = free_port(), free_port()
    settings = [
        f"listeners=PLAINTEXT://127.0.0.1:{ports[0]},SASL_PLAINTEXT://127.0.0.1:{ports[1]}",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="pw" user_super="pw";',
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS;User:super",
    ]
    assert NAMES[Type.CLUSTER] == CLUSTER
    with OncelogProcess(directory, settings, ports[0]):
        return asyncio.run(_try_all(ports))
