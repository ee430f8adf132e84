"""The load: all clients at once, told to run and to pause; and the evidence of what became of it."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from oncelog.clients.admin.topics import NewTopic
from tests.faults import names
from tests.faults.access import Access
from tests.faults.client_process import ROLES, ClientProcess, RoleState
from tests.faults.history import Evidence, Input, Place, Transaction, TransactionKey, parse_input, parse_output
from tests.faults.reader import read_committed
from tests.faults.roles import Roles

START_SECONDS: Final = 60.0
PROGRESS_SECONDS: Final = 90.0
"""Within which each role has to commit again once a fault is healed. Clients' own time limits are 15 to 30 s."""
PAUSE_SECONDS: Final = 90.0
_CATCH_UP_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_REPLICAS: Final = 3


class Load:
    """The clients of one cluster."""

    def __init__(self, roles: Roles, client_names: Sequence[str], directory: Path) -> None:
        self._roles = roles
        self.clients = [ClientProcess(name, directory) for name in client_names]
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Create the topics and start the clients; each role has committed when this returns."""
        topics = [names.INPUTS, *(names.outputs(client.name) for client in self.clients)]
        async with self._roles.admin() as admin:
            outcomes = await admin.create_topics(
                [NewTopic(name=topic, partitions=names.PARTITIONS, replication_factor=_REPLICAS) for topic in topics]
            )
        assert not any(outcomes.values()), outcomes
        for client in self.clients:
            self._running.push_async_callback(client.stop)
            await client.start(self._roles.access)
        self.run()
        await self.until_progress(START_SECONDS)

    async def stop(self) -> None:
        await self._running.aclose()

    async def restart_client(self, name: str) -> None:
        """kill -9 of a client, and a successor that runs at once."""
        await next(client for client in self.clients if client.name == name).restart()

    async def move_client(self, name: str, access: Access) -> None:
        """kill -9 of a client, and a successor with another access that runs at once."""
        await next(client for client in self.clients if client.name == name).restart(access)

    def _roles_of_all(self) -> Iterable[tuple[ClientProcess, str, RoleState]]:
        return [(client, role, client.roles[role]) for client in self.clients for role in ROLES]

    def run(self) -> None:
        for client, role, _ in self._roles_of_all():
            client.order(role, "run")

    async def until_progress(self, seconds: float = PROGRESS_SECONDS, commits: int = 2) -> None:
        """Return when every role has committed so often from now on. Raises ``TimeoutError``, ``ClientDied``."""
        deadline = asyncio.get_running_loop().time() + seconds
        wanted = [(client, role, len(state.commits) + commits) for client, role, state in self._roles_of_all()]
        for client, role, count in wanted:
            await client.until(partial(client.has_committed, role, count), deadline, f"no commit by its {role}")

    async def pause(self) -> list[Input]:
        """Let writers pause, and workers when they are through; the inputs that readers see then."""
        await self._pause("writer")
        inputs = await self._inputs()
        await self._until_transformed(inputs)
        await self._pause("worker")
        return inputs

    async def _pause(self, role: str) -> None:
        for client in self.clients:
            client.order(role, "pause")
        deadline = asyncio.get_running_loop().time() + PAUSE_SECONDS
        for client in self.clients:
            await client.until(partial(client.has_paused, role), deadline, f"its {role} did not pause")

    async def _inputs(self) -> list[Input]:
        found = await asyncio.to_thread(read_committed, self._roles.access, names.INPUTS)
        return [parse_input(text, place) for text, place in found]

    async def _until_transformed(self, inputs: Sequence[Input]) -> None:
        """Wait until the groups have committed all inputs; not forever, as the checker will tell of it."""
        following = Place.following(record.at for record in inputs)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CATCH_UP_SECONDS
        while loop.time() < deadline:
            committed = await self._committed()
            if all(
                committed[client.name].get(partition, 0) >= offset
                for client in self.clients
                for partition, offset in following.items()
            ):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _committed(self) -> dict[str, dict[int, int]]:
        async with self._roles.admin() as admin:
            responses = {
                client.name: await admin.committed_offsets(names.group(client.name)) for client in self.clients
            }
        return {
            name: {partition.partition: found.offset for partition, found in offsets.items()}
            for name, offsets in responses.items()
        }

    async def evidence(self, inputs: list[Input]) -> Evidence:
        """Everything so far; the load is paused."""
        outputs = {}
        for client in self.clients:
            found = await asyncio.to_thread(read_committed, self._roles.access, names.outputs(client.name))
            outputs[client.name] = [parse_output(text, place) for text, place in found]
        return Evidence(
            transactions=self.transactions(), inputs=inputs, outputs=outputs, committed=await self._committed()
        )

    def transactions(self) -> dict[TransactionKey, Transaction]:
        return {key: value for client in self.clients for key, value in client.transactions.items()}

    def stalls(self, since: float, until: float) -> dict[tuple[str, str], float]:
        """The longest time without a commit between two moments, of each client's roles, in seconds."""
        found: dict[tuple[str, str], float] = {}
        for client, role, state in self._roles_of_all():
            moments = [since, *(moment for moment in state.commits if since < moment < until), until]
            found[client.name, role] = max(after - before for before, after in pairwise(moments))
        return found
