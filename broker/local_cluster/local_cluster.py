"""A cluster on this machine: one ZooKeeper server and some brokers, each a process, all children of one parent.

The parent starts them, waits until each broker knows all others, and then does two things: it reports a process that
ended without an order, and it carries out orders (``control_socket``). It never restarts a process by itself: a killed
one stays dead until an order starts it, as experiments need it.

Stopping is a controlled shutdown of one broker after the other, so that leaderships and coordinators move in order, but
none waits long for one that was stopped before; ZooKeeper is last. If the parent itself is killed, the kernel kills the
children (``tether``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from oncelog.broker.local_cluster.control_socket import MemberStatus, Order, Report
from oncelog.broker.local_cluster.layout import Layout
from oncelog.broker.local_cluster.member_process import MemberProcess, Refused
from oncelog.broker.local_cluster.members import BrokerMember, MemberSettings, ZooKeeperMember
from oncelog.broker.local_cluster.zookeeper_server import ServerSecurity
from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse

_COMPLETE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05
_HANDOVER_SECONDS: Final = 2.0
"""Seconds in which a broker hands over its leaderships and ends."""
_STATUS: Final = "status"

Deed: TypeAlias = Callable[[MemberProcess], Awaitable[None]]

_DEEDS: Final[Mapping[str, Deed]] = {
    "kill": MemberProcess.kill,
    "pause": MemberProcess.pause,
    "resume": MemberProcess.resume,
    "stop": MemberProcess.stop,
    "start": MemberProcess.start,
    "restart": MemberProcess.restart,
}
_ONE_BY_ONE: Final = frozenset({"stop", "restart"})
"""Brokers that leave in order hand over to those that stay."""
_STARTING: Final = frozenset({"start", "restart"})


class LocalCluster:
    """The processes of one directory."""

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        settings: Callable[[int], MemberSettings],
        announce: Callable[[str], None],
        zookeeper_security: ServerSecurity | None = None,
    ) -> None:
        """Start nothing yet; ``settings``: by broker id; ``announce`` prints a line."""
        self._announce = announce
        self.zookeeper = ZooKeeperMember(directory, layout.zookeeper_port, zookeeper_security, announce)
        self.brokers = [
            BrokerMember(directory, broker_id, port, self.zookeeper.connect, settings(broker_id), announce)
            for broker_id, port in layout.broker_ports.items()
        ]
        self._members: dict[str, MemberProcess] = {member.name: member for member in (self.zookeeper, *self.brokers)}

    async def start(self) -> None:
        """Start everything; the cluster is complete when this returns. Raises ``Refused``."""
        await self.zookeeper.start()
        problems = await _all_at_once(MemberProcess.start, self.brokers)
        if problems:
            raise Refused("\n".join(problems))
        try:
            async with asyncio.timeout(_COMPLETE_SECONDS):
                for member in self.brokers:
                    await self._until_complete(member)
        except TimeoutError:
            raise Refused(f"the brokers did not find each other within {_COMPLETE_SECONDS:g} s") from None

    async def _until_complete(self, member: BrokerMember) -> None:
        """Return when a broker knows all others and the controller."""
        wanted = {broker.broker_id for broker in self.brokers}
        while True:
            known, controller_id = await _look(member.address, member.security)
            if known == wanted and controller_id in wanted:
                return
            if not member.is_alive:
                raise Refused(f"{member.title} ended while the cluster was started")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def stop(self) -> None:
        """Shut everything down; nothing runs when this returns."""
        for member in self._members.values():
            if member.state == "paused":
                await member.resume()
        alive = [broker for broker in self.brokers if broker.is_alive]
        # Without ZooKeeper no broker can take over leaderships, so the order does not matter.
        problems = await (
            _stop_staggered(alive) if self.zookeeper.is_alive else _all_at_once(MemberProcess.stop, alive)
        )
        if self.zookeeper.is_alive:
            problems += await _in_turn(MemberProcess.stop, [self.zookeeper])
        for problem in problems:
            self._announce(problem)

    def kill_at_once(self) -> None:
        """Kill everything with SIGKILL."""
        for member in self._members.values():
            member.kill_at_once()

    async def execute(self, order: Order) -> Report:
        """Carry out an order, and report on the members that it names; on all if it names none."""
        names = order.members or tuple(self._members)
        unknown = [name for name in names if name not in self._members]
        if unknown:
            known = ", ".join(self._members)
            return Report(problems=[f"there is no member {name}: there are {known}" for name in unknown])
        members = [self._members[name] for name in dict.fromkeys(names)]
        problems = await self._do(order.verb, members)
        return Report(members=[_status(member) for member in members], problems=problems)

    async def _do(self, verb: str, members: Sequence[MemberProcess]) -> list[str]:
        if verb == _STATUS:
            return []
        deed = _DEEDS.get(verb)
        if deed is None:
            return [f"{verb} is not something that a cluster can do"]
        if problems := self._about_zookeeper(verb, members):
            return problems
        self._announce(f"{verb} {' '.join(member.name for member in members)}")
        return await (_in_turn if verb in _ONE_BY_ONE else _all_at_once)(deed, members)

    def _about_zookeeper(self, verb: str, members: Sequence[MemberProcess]) -> list[str]:
        """Return why brokers cannot start, if that is ZooKeeper: they would only wait for it, and give up."""
        state = self.zookeeper.state
        starting = members if verb == "restart" else [member for member in members if not member.is_alive]
        is_there = state in ("running", "starting") or self.zookeeper in members
        if verb not in _STARTING or is_there or not starting:
            return []
        remedy = "resume" if state == "paused" else "start"
        return [f"ZooKeeper is {state}, and brokers need it to start: `oncelog cluster {remedy} {self.zookeeper.name}`"]

    def status(self) -> list[MemberStatus]:
        return [_status(member) for member in self._members.values()]


async def _in_turn(deed: Deed, members: Iterable[MemberProcess]) -> list[str]:
    """Do it with one after the other; return what could not be done."""
    problems = []
    for member in members:
        problem = await _try(deed, member)
        if problem is not None:
            problems.append(problem)
    return problems


async def _stop_staggered(members: Iterable[MemberProcess]) -> list[str]:
    """Stop one after the other; return what could not be done.

    One that takes longer than to hand over waits for replicas on a broker that was stopped before: the next one is
    stopped, too, until no broker is left to wait for.
    """
    async with asyncio.TaskGroup() as group:
        tasks = []
        for member in members:
            tasks.append(group.create_task(_try(MemberProcess.stop, member)))
            await asyncio.wait(tasks, timeout=_HANDOVER_SECONDS)
    return [problem for task in tasks if (problem := task.result()) is not None]


async def _all_at_once(deed: Deed, members: Iterable[MemberProcess]) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_try(deed, member)) for member in members]
    return [problem for task in tasks if (problem := task.result()) is not None]


async def _try(deed: Deed, member: MemberProcess) -> str | None:
    try:
        await deed(member)
    except Refused as refused:
        return str(refused)
    return None


async def _look(address: str, security: PeerSecurity) -> tuple[set[int], int | None]:
    """Return the brokers and the controller that a broker knows; none if it does not respond."""
    connection: Connection | None = None
    host, _, port = address.rpartition(":")
    try:
        connection = await connect(Address(host.strip("[]"), int(port)), tls=security.tls, sasl=security.sasl)
        metadata = await connection.send(MetadataRequest(topics=[]), MetadataResponse)
    except ClientError:
        return set(), None
    finally:
        if connection is not None:
            connection.close()
    return {broker.node_id for broker in metadata.brokers}, metadata.controller_id


def _status(member: MemberProcess) -> MemberStatus:
    return MemberStatus(
        member=member.name,
        state=member.state,
        pid=member.pid,
        address=member.address,
        exit_code=member.exit_code,
        log=str(member.log),
    )
