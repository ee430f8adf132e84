"""Access control lists that Kafka 3.9 wrote to ZooKeeper decide here as they did there.

Kafka's broker and its ``kafka-acls`` create the lists, and requests are sent to it. It stops, and a broker of ours
starts on the same ZooKeeper. Every state of a right has a user, and for each request resources, of its own, so that all
lists are there at once.
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from oncelog.broker.dispatch.request import Principal
from oncelog.broker.local_cluster.zookeeper_server import JARS_VARIABLE, ZooKeeperServer
from oncelog.clients.connection import Address, connect
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.acl import AclBinding, AclPermissionType
from oncelog.protocol.acl import AclResourceType as Type
from oncelog.protocol.sasl.login import SaslLogin
from tests.conformance.acl_responses import error_codes
from tests.conformance.acl_stage import SUPER
from tests.interop.broker_under_test import needs_one_broker
from tests.interop.drivers.program import java, run
from tests.kafka_on_zookeeper import KafkaOnZooKeeper
from tests.processes import KAFKA_3_9, BrokerProcess, OncelogProcess, class_path, free_port
from tests.security.authorization_cells import ALLOWED, State, states_of
from tests.security.authorization_row import GROUP, REFUSALS, TOPIC, TRANSACTIONAL_ID, Row
from tests.security.authorization_table import ROWS
from tests.security.live_stage import LiveStage, set_acls

REQUESTS: Final = (
    "Produce 11",
    "Fetch 12",
    "ListOffsets 7",
    "Heartbeat 4",
    "DeleteGroups 2",
    "EndTxn 3",
    "DescribeConfigs 4, of a topic",
)
TRIED: Final = [row for row in ROWS if row.name in REQUESTS]
NAMES: Final = {Type.TOPIC: TOPIC, Type.GROUP: GROUP, Type.TRANSACTIONAL_ID: TRANSACTIONAL_ID}
PASSWORD: Final = "pw"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
_OPTIONS: Final = {Type.TOPIC: "--topic", Type.GROUP: "--group", Type.TRANSACTIONAL_ID: "--transactional-id"}


class Decision(NamedTuple):
    """A request of one user, and the lists that are about it."""

    row: Row
    state: State
    user: Principal
    names: Mapping[str, str]
    """The names of what the request is about, by those in the table."""

    @property
    def expected(self) -> str:
        return ALLOWED if self.state.is_allowed else self.row.needs[0].error.name

    def __str__(self) -> str:
        return f"{self.row.name}: {self.state.name}"

    def fields(self) -> Any:
        return renamed(self.row.fields, self.names)


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return fields with other names in them."""
    if isinstance(value, dict):
        return {key: renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


def decisions() -> Iterator[Decision]:
    for number, row in enumerate(TRIED):
        (need,) = row.needs
        for state_number in count():
            user = Principal("User", f"u{state_number}")
            name = f"{number}x{state_number:02}-{NAMES[need.type]}"
            states = list(states_of(need, name, user))
            if state_number == len(states):
                break
            state = states[state_number]
            yield Decision(row, state, SUPER if state.is_super else user, {NAMES[need.type]: name})


DECISIONS: Final = list(decisions())
USERS: Final = sorted({decision.user for decision in DECISIONS})
RULES: Final = [entry.binding() for decision in DECISIONS for entry in decision.state.entries]


def kafka_acls(process: BrokerProcess, *words: str) -> str:
    """What Kafka's tool prints."""
    where = "--bootstrap-server", process.address
    return run(java(class_path(KAFKA_3_9), "kafka.admin.AclCommand", *where, *words))


def as_words(rule: AclBinding) -> list[str]:
    """A rule as ``kafka-acls`` takes it."""
    pattern, entry = rule
    permission = "allow" if entry.permission_type is AclPermissionType.ALLOW else "deny"
    words = [f"--{permission}-principal", entry.principal, f"--{permission}-host", entry.host]
    words += ["--operation", entry.operation.name, _OPTIONS[pattern.resource_type], pattern.name]
    return [*words, "--resource-pattern-type", pattern.pattern_type.name]


def listed(process: BrokerProcess) -> set[tuple[str, str]]:
    """The entries that Kafka's tool lists, each beside its pattern."""
    found, pattern = set(), ""
    for line in kafka_acls(process, "--list").splitlines():
        if "ResourcePattern(" in line:
            pattern = line
        elif "principal=" in line:
            found.add((pattern, line.strip()))
    return found


def by_the_tool(rules: list[AclBinding]) -> list[AclBinding]:
    """A few rules, that have between them all that a rule can have: what is literal, prefixed, denied, of one host."""
    seen: set[object] = set()
    chosen = []
    for rule in rules:
        pattern, entry = rule
        traits = {pattern.pattern_type, entry.permission_type, pattern.name == "*", entry.host == "*"}
        if not traits <= seen:
            chosen.append(rule)
            seen |= traits
    return chosen


class Servers:
    """The ZooKeeper, and the settings of brokers on it."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        users = " ".join(f'user_{user.name}="{PASSWORD}"' for user in USERS)
        self._settings = [
            "sasl.enabled.mechanisms=PLAIN",
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={MODULE} required {users};",
            f"authorizer.class.name={AUTHORIZER}",
            "super.users=User:ANONYMOUS;User:super",
        ]

    def kafka(self, user_port: int) -> KafkaOnZooKeeper:
        kafka = KafkaOnZooKeeper(self._directory / "kafka", 1, self._zookeeper, self._settings)
        kafka.settings = [*kafka.settings, _listeners(kafka.port, user_port)]
        return kafka

    def oncelog(self, user_port: int) -> OncelogProcess:
        port = free_port()
        joined = [f"zookeeper.connect={self._zookeeper}", "broker.id=2", _listeners(port, user_port)]
        return OncelogProcess(self._directory / "oncelog", [*self._settings, *joined], port)


def _listeners(port: int, user_port: int) -> str:
    return f"listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{user_port}"


async def create(process: BrokerProcess, rules: list[AclBinding]) -> None:
    """Create lists by one request, as admin clients do."""
    host, _, port = process.address.rpartition(":")
    connection = await connect(Address(host, int(port)))
    await set_acls(connection, rules)
    connection.close()


async def outcomes(user_port: int) -> dict[str, str]:
    """What comes of every request."""
    connections = {}
    for user in USERS:
        login = SaslLogin(mechanism="PLAIN", username=user.name, password=PASSWORD)
        connections[user] = await connect(Address("127.0.0.1", user_port), sasl=SaslClient(login))
    stage = LiveStage(connections)
    found = {}
    for decision in DECISIONS:
        row = decision.row
        response = await stage.send(row.request, row.version, decision.fields(), decision.user)
        refusals = set(error_codes(response, row.version)) & REFUSALS
        found[str(decision)] = "+".join(sorted(each.name for each in refusals)) or ALLOWED
    for connection in connections.values():
        connection.close()
    return found


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(JARS_VARIABLE, str(KAFKA_3_9))
        with ZooKeeperServer(tmp_path / "zookeeper", free_port()) as server:
            yield Servers(tmp_path, server.address)


@pytest.mark.smoke
@needs_one_broker("it starts its own")
def test_lists_that_kafka_wrote_decide_as_they_did_in_kafka(servers: Servers) -> None:
    expected = {str(decision): decision.expected for decision in DECISIONS}
    own = by_the_tool(RULES)
    gone = own[0]._replace(entry=own[0].entry._replace(principal="User:gone"))
    user_port = free_port()
    with servers.kafka(user_port) as kafka:
        asyncio.run(create(kafka, [rule for rule in RULES if rule not in own]))
        for rule in own:
            kafka_acls(kafka, "--add", *as_words(rule))
        kafka_acls(kafka, "--add", *as_words(gone))
        kafka_acls(kafka, "--remove", "--force", *as_words(gone))
        there = asyncio.run(outcomes(user_port))
        written = listed(kafka)
    assert there == expected
    user_port = free_port()
    with servers.oncelog(user_port) as oncelog:
        here = asyncio.run(outcomes(user_port))
        assert listed(oncelog) == written
    assert here == expected
    assert len(expected) >= 160
