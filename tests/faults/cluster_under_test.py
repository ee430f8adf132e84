"""The cluster that faults strike: ``oncelog cluster`` as a process, its ports known before it starts.

Orders go to its control socket, as those of ``oncelog cluster kill 2`` do, but without a new process for each.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oncelog.broker.config.sources import load_config
from oncelog.broker.local_cluster.control_socket import MemberStatus, Order, give_order
from oncelog.broker.local_cluster.layout import Layout, free_ports, plan_layout, write_layout
from oncelog.broker.metadata.store_choice import zookeeper_security
from oncelog.coordinator.metadata_store.zookeeper_security import UNPROTECTED, ZooKeeperSecurity
from tests.faults.access import Access
from tests.processes import ClusterProcess

_ORDER_SECONDS: Final = 90.0
BROKERS: Final = 3


class OrderFailed(Exception):
    """What the cluster could not do."""


def plan_cluster(directory: Path, rng: random.Random) -> Layout:
    """Decide on the ports of a cluster, in a new directory of its own; the start will find them there."""
    layout = plan_layout(None, brokers=BROKERS, port=0, free_ports=lambda: free_ports(rng))
    place = directory / "cluster"
    place.mkdir(parents=True)
    write_layout(place, layout)
    return layout


class ClusterUnderTest:
    """A running cluster, and what can be done to its processes. Members are ``"zookeeper"`` and the brokers' ids."""

    def __init__(self, directory: Path, layout: Layout, settings: Sequence[str], *, is_secured: bool = False) -> None:
        """``is_secured``: TLS, logins and access control lists, between brokers too."""
        self.layout = layout
        self.process = ClusterProcess(directory, BROKERS, settings, secure=is_secured)

    @property
    def access(self) -> Access:
        """How its clients connect."""
        if not self.process.secure:
            return Access(self.bootstrap)
        return Access.of_administrator(self.bootstrap, self.process.cluster_directory)

    async def start(self) -> None:
        await asyncio.to_thread(self.process.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self.process.stop)

    @property
    def bootstrap(self) -> str:
        """Where clients connect, all brokers."""
        return self.process.address

    @property
    def broker_ids(self) -> list[int]:
        return list(self.layout.broker_ports)

    @property
    def zookeeper_address(self) -> str:
        return f"127.0.0.1:{self.layout.zookeeper_port}"

    @property
    def zookeeper_security(self) -> ZooKeeperSecurity:
        """What the brokers' connections to ZooKeeper are protected by."""
        if not self.process.secure:
            return UNPROTECTED
        text = (self.process.cluster_directory / "secured" / "server.properties").read_text()
        overrides = [f"zookeeper.connect={self.zookeeper_address}"]
        return zookeeper_security(load_config(properties=text, overrides=overrides).config)

    def place(self, broker_id: int) -> Path:
        """A broker's data directory."""
        return self.process.cluster_directory / f"broker-{broker_id}"

    async def order(self, verb: str, *members: int | str) -> dict[str, MemberStatus]:
        """Have it done; how the members are afterwards, by name. Raises ``OrderFailed``."""
        order = Order(verb=verb, members=tuple(map(str, members)))
        async with asyncio.timeout(_ORDER_SECONDS):
            report = await give_order(self.process.cluster_directory, order)
        if report.problems:
            raise OrderFailed("; ".join(report.problems))
        return {member.member: member for member in report.members}

    async def members(self) -> dict[str, MemberStatus]:
        return await self.order("status")

    async def start_whatever_is_down(self) -> None:
        """Resume what is paused and start what does not run, ZooKeeper before the brokers."""
        found = await self.members()
        paused = [name for name, member in found.items() if member.state == "paused"]
        down = [name for name, member in found.items() if member.state not in ("paused", "running", "starting")]
        if paused:
            await self.order("resume", *paused)
        if "zookeeper" in down:
            await self.order("start", "zookeeper")
            down.remove("zookeeper")
        if down:
            await self.order("start", *down)
