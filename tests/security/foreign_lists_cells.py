"""The recorded responses again, with the access control lists written to ZooKeeper by Apache Kafka 3.9.

So are the requests of brokers, in every state of the right to send them. A broker of Kafka that has its own znodes
elsewhere keeps its lists where our broker has them (``authorizer.zookeeper.url``), and our broker follows them.
"""

import asyncio
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

from oncelog.broker.dispatch.request import ANONYMOUS, Principal
from oncelog.broker.local_cluster.zookeeper_server import JARS_VARIABLE, ZooKeeperServer
from oncelog.clients.connection import Address, Connection, connect
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tests.conformance.acl_differences import expected
from tests.conformance.acl_table import Cell as RecordedCell
from tests.conformance.acl_table import read_cells
from tests.interop.drivers.program import lacking_peer
from tests.kafka_on_zookeeper import KafkaOnZooKeeper
from tests.processes import KAFKA_3_9, OncelogProcess, free_port
from tests.security.authorization_brokers import BROKERS_ROWS
from tests.security.authorization_cells import Trials
from tests.security.cell import Cell, NotTried
from tests.security.live_stage import LiveStage, connected, create_acls, settings_of

_ANY: Final = 1
_ATTEMPTS: Final = 3_000
_ALONE: Final = (
    "broker.id=1",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
)


class ForeignStage(LiveStage):
    """A broker whose lists are written by Kafka."""

    def __init__(self, connections: Mapping[Principal, Connection], kafka: Connection) -> None:
        super().__init__(connections)
        self._kafka = kafka
        self._rules: set[AclBinding] = set()

    async def replace_rules(self, rules: list[AclBinding]) -> None:
        wanted = set(rules)
        if gone := self._rules - wanted:
            filters = [_only(rule) for rule in gone]
            await self._kafka.send(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
        if new := wanted - self._rules:
            await create_acls(self._kafka, new)
        self._rules = wanted
        for _ in range(_ATTEMPTS):
            if await self._known_rules() == wanted:
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"the broker does not learn of {wanted}")

    async def _known_rules(self) -> set[AclBinding]:
        """Return the lists by which the broker decides."""
        request = DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        response = await self.connections[ANONYMOUS].send(request, DescribeAclsResponse)
        return {
            AclBinding(
                ResourcePattern(
                    AclResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
                ),
                AccessControlEntry(
                    acl.principal, acl.host, AclOperation(acl.operation), AclPermissionType(acl.permission_type)
                ),
            )
            for resource in response.resources
            for acl in resource.acls
        }


def _only(rule: AclBinding) -> DeleteAclsFilter:
    pattern, entry = rule
    return DeleteAclsFilter(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


async def _try_all(ports: tuple[int, int], kafka_port: int, recorded: list[RecordedCell]) -> list[Cell]:
    kafka = await connect(Address("127.0.0.1", kafka_port))
    stage = ForeignStage(await connected(*ports), kafka)
    await stage.prepare()
    await stage.replace_rules([])
    cells = []
    for _, of_case in groupby(recorded, key=lambda cell: cell.case):
        await stage.commit_offsets()
        cells += [Cell(f"{cell}, of Kafka 3.9", expected(cell), await stage.respond(cell)) for cell in of_case]
    if not any(cell.allows_everyone for cell in recorded):
        trials = Trials(stage)
        cells += [cell for row in BROKERS_ROWS for cell in await trials.of_row(row)]
    await stage.set_rules([])
    for connection in (kafka, *stage.connections.values()):
        connection.close()
    return cells


def foreign_lists_cells(directory: Path) -> list[Cell]:
    """Try all recorded cells on a ZooKeeper. Raises ``NotTried`` without Java and Kafka 3.9."""
    lacking = lacking_peer("kafka-3.9", "java")
    if lacking:
        raise NotTried(lacking)
    cells = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(JARS_VARIABLE, str(KAFKA_3_9))
        with ZooKeeperServer(directory / "zookeeper", free_port()) as zookeeper:
            for allows_everyone in (False, True):
                recorded = [cell for cell in read_cells() if cell.allows_everyone is allows_everyone]
                chroot = f"{zookeeper.address}/everyone-{allows_everyone}"
                cells += _cells_on(directory / str(allows_everyone), chroot, recorded, allows_everyone=allows_everyone)
    return cells


def _cells_on(directory: Path, chroot: str, recorded: list[RecordedCell], *, allows_everyone: bool) -> list[Cell]:
    ports = free_port(), free_port()
    everyone = f"allow.everyone.if.no.acl.found={str(allows_everyone).lower()}"
    settings = [*settings_of(*ports), *_ALONE, f"zookeeper.connect={chroot}", everyone]
    lists = [
        f"authorizer.zookeeper.url={chroot}",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS",
    ]
    broker = OncelogProcess(directory / "oncelog", settings, ports[0])
    with broker, KafkaOnZooKeeper(directory / "kafka", 1, f"{chroot}-kafka", lists) as kafka:
        return asyncio.run(_try_all(ports, kafka.port, recorded))
