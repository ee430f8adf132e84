"""Each request of the table in each state of its access control lists, on a real broker.

A cell is about one of the needs of a request: the state is that of its rights, and everything else is allowed.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.broker.dispatch.request import Principal
from oncelog.protocol.acl import AccessControlEntry, AclBinding, AclPermissionType, PatternType, ResourcePattern
from oncelog.protocol.acl import AclOperation as Op
from oncelog.protocol.acl import AclResourceType as Type
from oncelog.protocol.errors import ErrorCode
from tests.conformance.acl_stage import ALICE, SUPER
from tests.processes import OncelogProcess, free_port
from tests.scenarios.sasl_states import error_codes
from tests.security.authorization_row import NAMES, REFUSALS, TOPIC, TRANSACTIONAL_ID, Before, Effect, Made, Need, Row
from tests.security.authorization_table import ROWS
from tests.security.cell import Cell
from tests.security.live_stage import LiveStage, connected, settings_of

ALLOWED: Final = "allowed"
LEFT_OUT: Final = "left out"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
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
    principal: str = str(ALICE)
    host: str = "*"
    pattern: PatternType = PatternType.LITERAL

    def binding(self) -> AclBinding:
        entry = AccessControlEntry(self.principal, self.host, self.operation, self.permission)
        return AclBinding(ResourcePattern(self.type, self.name, self.pattern), entry)


class State(NamedTuple):
    """The rights to what a need is about."""

    name: str
    entries: tuple[Entry, ...]
    is_allowed: bool
    is_super: bool = False
    """Whether the user is a super user instead."""


def states_of(need: Need, name: str, user: Principal = ALICE) -> Iterator[State]:
    """Yield every state of a user's right to what has the name, and whether the right is there."""
    kind, operation = need.type, need.operation
    right = Entry(kind, name, operation, principal=str(user))
    wrong = _WRONG.get(operation, Op.CREATE)
    yield State("no right", (), False)
    yield State("a right to something else", (right._replace(operation=wrong),), False)
    yield State("the right", (right,), True)
    yield State("the right to its whole name as a prefix", (right._replace(pattern=PatternType.PREFIXED),), True)
    yield State("every operation", (right._replace(operation=Op.ALL),), True)
    yield State("the right for every user", (right._replace(principal="User:*"),), True)
    yield State(
        "the right for a user in another case", (right._replace(principal=f"User:{user.name.capitalize()}"),), False
    )
    yield State("the right for another kind of principal", (right._replace(principal=f"Group:{user.name}"),), False)
    yield State("the right from this host", (right._replace(host="127.0.0.1"),), True)
    yield State("the right from another host", (right._replace(host="10.9.9.9"),), False)
    yield State("a denial beside the right", (right, right._replace(permission=DENY)), False)
    denial_for_all = right._replace(permission=DENY, principal="User:*", operation=Op.ALL)
    yield State("a denial of everything to every user", (right, denial_for_all), False)
    yield State("a denial to another user", (right, right._replace(permission=DENY, principal="User:bob")), True)
    yield State("a denial from another host", (right, right._replace(permission=DENY, host="10.9.9.9")), True)
    yield State("a denial as a super user", (denial_for_all,), True, is_super=True)
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
        denial = right._replace(operation=Op.DESCRIBE, permission=DENY)
        yield State("a denial of DESCRIBE", (right, denial), not need.needs_describe)


def need_of_any(need: Need) -> bool:
    """Return whether a right to any resource of the type is enough."""
    return need.type is Type.TOPIC and need.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def expected(need: Need, state: State) -> str:
    """Return what is to come of a request in a state of one of its needs."""
    is_allowed = need.effect is Effect.IS_NOT_NEEDED or (state.is_allowed and need.effect is Effect.DECIDES)
    if is_allowed:
        return ALLOWED
    return LEFT_OUT if need.is_left_out else need.error.name


class Trials:
    """Sends the requests of the table to a broker."""

    def __init__(self, stage: LiveStage) -> None:
        self._stage = stage
        self._names: Mapping[Type, str] = {**NAMES, Type.DELEGATION_TOKEN: stage.token_id}

    async def of_row(self, row: Row) -> list[Cell]:
        """Try a request in every state of each of its needs."""
        await self._stage.create_topic(TOPIC)
        cells = []
        for need in row.needs:
            others = [self._right(each) for each in row.needs if each is not need]
            for state in states_of(need, self._names[need.type]):
                await self._stage.set_rules(each.binding() for each in (*others, *state.entries))
                found = await self._outcome(row, SUPER if state.is_super else ALICE)
                title = f"{row.name}, {need.type.name} {need.operation.name}: {state.name}"
                cells.append(Cell(title, expected(need, state), found))
        return cells

    def _right(self, need: Need) -> Entry:
        return Entry(need.type, self._names[need.type], need.operation)

    async def _outcome(self, row: Row, user: Principal) -> str:
        """Send a request, and return its refusals, or whether something is left out."""
        stage = self._stage
        await self._prepare(row.before)
        made = Made(topic_id=await stage.topic_id(TOPIC), token_id=stage.token_id, token_hmac=stage.token_hmac)
        response = await stage.send(row.request, row.version, row.fields_for(made), user)
        refusals = {ErrorCode(code) for code in error_codes(response, row.version)} & REFUSALS
        if refusals:
            return "+".join(sorted(each.name for each in refusals))
        return ALLOWED if row.shows is None or row.shows(response, made) else LEFT_OUT

    async def _prepare(self, before: Before | None) -> None:
        match before:
            case Before.OFFSET:
                await self._stage.commit_offsets()
            case Before.TOPIC:
                await self._stage.create_topic(TOPIC)
            case Before.TRANSACTION:
                await self._stage.add_partition(TRANSACTIONAL_ID, await self._stage.producer(TRANSACTIONAL_ID))


async def _try_all(ports: tuple[int, int]) -> list[Cell]:
    connections = await connected(*ports)
    stage = LiveStage(connections)
    await stage.prepare()
    trials = Trials(stage)
    cells = [cell for row in ROWS for cell in await trials.of_row(row)]
    for connection in connections.values():
        connection.close()
    return cells


def authorization_cells(directory: Path) -> list[Cell]:
    """Try all of them on one broker."""
    ports = free_port(), free_port()
    with OncelogProcess(directory, settings_of(*ports), ports[0]):
        return asyncio.run(_try_all(ports))
