"""One round: a cluster on PLAINTEXT gets TLS, logins and lists as the how-to page says, and goes back.

Each section of the page is a leg: its commands are run and its settings given to the brokers, one after the other,
while the load goes on. What the page leaves to its readers is added: the logins of the clients that make the load, and
the lists that they need. No client may be denied anything on the way. Then every step is undone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from oncelog.clients.errors import AuthenticationFailed, BrokerRefused, ClientError
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    ResourcePattern,
)
from oncelog.protocol.errors import ErrorCode
from tests.faults import names
from tests.faults.access import Access
from tests.faults.checker import Violation
from tests.faults.roles import Roles
from tests.faults.rounds import SETTINGS
from tests.rolling.configured_cluster import ConfiguredBroker, ConfiguredCluster
from tests.rolling.how_to import EXAMPLE_HOST, Commands, Settings, read_how_to, with_passwords, with_places
from tests.rolling.loaded_cluster import LegResult, LoadedCluster, Walk
from tests.rolling.operator import Operator
from tests.rolling.rounds import Say
from tests.rolling.second_reader import read_committed_again

PREPARATION: Final = "Before"
LISTENER: Final = "Add a listener"
BROKERS: Final = "Let the brokers use it"
CLIENTS: Final = "Move the clients"
AUTHORIZER: Final = "Turn the authorizer on"
CLOSE: Final = "Close the old listener"
END: Final = "End everyone's rights"
FOLLOWED: Final = (LISTENER, BROKERS, CLIENTS, AUTHORIZER, CLOSE, END)
"""The sections of the page that are legs, in order."""
_DIRECTORY: Final = "/etc/oncelog/tls"
_DENIED: Final = "] Denied "
_EVERYONE: Final = "oncelog acl add 'User:*'"
_OF_PAGE: Final = "shop"
"""The user of the page's example."""
_PASSWORD_BITS: Final = 160


def needs(client: str) -> list[AclBinding]:
    """Return the lists that a client of the load needs, and no other."""
    wanted = (
        (AclOperation.WRITE, AclResourceType.TOPIC, names.INPUTS),
        (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, names.writer_id(client)),
        (AclOperation.READ, AclResourceType.TOPIC, names.INPUTS),
        (AclOperation.READ, AclResourceType.GROUP, names.group(client)),
        (AclOperation.WRITE, AclResourceType.TOPIC, names.outputs(client)),
        (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, names.worker_id(client)),
    )
    return [
        AclBinding(
            ResourcePattern(kind, name),
            AccessControlEntry(f"User:{client}", "*", operation, AclPermissionType.ALLOW),
        )
        for operation, kind, name in wanted
    ]


class SecurityJourney:
    """A cluster with its load, through all legs."""

    def __init__(self, directory: Path, clients: Sequence[str], say: Say, *, kill: bool, rng: Random) -> None:
        """``kill``: end brokers by kill -9 and not by SIGTERM; ``rng`` makes passwords."""
        self._kill = kill
        self._say = say
        self._page = read_how_to()
        self._cluster = ConfiguredCluster(directory, dict(setting.split("=", 1) for setting in SETTINGS))
        self._operator = Operator(directory / "operator", self._places(directory / "operator" / "tls"))
        self._loaded = LoadedCluster(self._cluster, clients, directory, say)
        self._passwords = {client: f"{rng.getrandbits(_PASSWORD_BITS):040x}" for client in clients}
        self._former: dict[str, dict[int, dict[str, str]]] = {}
        """The brokers' settings after each section, by its title and their ids."""
        self._denials: dict[int, int] = dict.fromkeys(self._cluster.places, 0)
        """How many denials of each broker have been seen."""

    def _places(self, certificates: Path) -> dict[str, str]:
        """Return what is to be put in place of the page's hosts, ports and directory."""
        places = {_DIRECTORY: str(certificates)}
        for broker in self._cluster.brokers:
            host = self._host(broker)
            places |= {host: "localhost", f"{host}:9092": f"localhost:{broker.port}"}
            places[f"{host}:9093"] = f"localhost:{broker.secured_port}"
        return places

    def _host(self, broker: ConfiguredBroker) -> str:
        return EXAMPLE_HOST.replace("1", str(broker.broker_id))

    async def play(self) -> list[LegResult]:
        """Play all legs, or those before the first with a violation and that one."""
        try:
            await self._run_all(PREPARATION)
            self._keep_settings(PREPARATION)
            await self._loaded.open()
            return await self._loaded.play(self._legs())
        finally:
            await self._loaded.close()

    def _legs(self) -> Mapping[str, Walk]:
        return {
            **{title: partial(self._follow, title) for title in FOLLOWED},
            "back: everyone's rights": self._allow_everyone,
            "back: the old listener": partial(self._go_back, AUTHORIZER),
            "back: no authorizer": partial(self._go_back, BROKERS),
            "back: the clients": self._move_clients_back,
            "back: the brokers": partial(self._go_back, LISTENER),
            "back: one listener": partial(self._go_back, PREPARATION),
        }

    # What the page says

    async def _follow(self, title: str, result: LegResult) -> None:
        """Do what a section says, and what it leaves to its readers."""
        for block in self._page[title]:
            if isinstance(block, Settings):
                await self._roll(result, {each.broker_id: self._changed(each, block) for each in self._cluster.brokers})
            else:
                await self._run(block)
        self._keep_settings(title)
        if title == LISTENER:
            for client, password in self._passwords.items():
                await asyncio.to_thread(self._operator.add_user, client, password)
        elif title == CLIENTS:
            await self._move_clients(result)
        elif title == AUTHORIZER:
            await self._allow_clients()
        elif title == END:
            await self._probe(result)
        self._look_for_denials(result)

    async def _run(self, commands: Commands) -> None:
        said = await asyncio.to_thread(self._operator.run, commands)
        for line in said.splitlines():
            self._say(f"    {line}")

    async def _run_all(self, title: str) -> None:
        for block in self._page[title]:
            assert isinstance(block, Commands)
            await self._run(block)

    def _changed(self, broker: ConfiguredBroker, change: Settings) -> dict[str, str]:
        """Return the settings of a broker with a change of the page."""
        places, passwords = self._places(Path(self._operator.authority).parent), self._operator.passwords
        found = {key: value for key, value in broker.config.items() if key not in change.removed}
        for key, example in change.values.items():
            own = with_passwords(example.replace(EXAMPLE_HOST, self._host(broker)), passwords)
            found[key] = with_places(own, places)
        return found

    def _keep_settings(self, title: str) -> None:
        self._former[title] = {broker.broker_id: dict(broker.config) for broker in self._cluster.brokers}

    async def _roll(self, result: LegResult, configs: Mapping[int, Mapping[str, str]]) -> None:
        """Restart one broker after the other with other settings, the controller last."""
        controller = await self._loaded.roles.controller()
        for broker in sorted(self._cluster.brokers, key=lambda broker: broker.broker_id == controller):
            await self._cluster.change(broker, configs[broker.broker_id], kill=self._kill)
            result.restarts += 1
            await self._loaded.settle(result, f"broker {broker.broker_id} restarted for {result.leg!r}")

    # What it leaves to its readers

    def _secured(self, user: str, password: str) -> Access:
        return Access(self._cluster.secured_bootstrap, user, password, self._operator.authority)

    async def _move_clients(self, result: LegResult) -> None:
        self._loaded.roles.access = self._secured("admin", self._operator.password("admin"))
        for client, password in self._passwords.items():
            await self._loaded.load.move_client(client, self._secured(client, password))
            await self._loaded.settle(result, f"client {client} moved")

    async def _allow_clients(self) -> None:
        async with self._loaded.roles.admin() as admin:
            outcomes = await admin.create_acls([binding for client in self._passwords for binding in needs(client)])
        assert not any(outcomes.values()), outcomes

    async def _probe(self, result: LegResult) -> None:
        """Look whether those are refused that should be, once everyone else has gone on without the former rights."""
        await self._loaded.settle(result, "without everyone's rights")
        self._look_for_denials(result)
        found = [
            *await self._probe_listener(),
            *await self._probe_password(),
            *await self._probe_rights(),
        ]
        result.violations += [Violation("open", text) for text in found]
        self._forget_denials()

    async def _probe_listener(self) -> list[str]:
        try:
            async with Roles(Access(self._cluster.bootstrap)).admin() as admin:
                await admin.describe_cluster()
        except ClientError as error:
            self._say(f"  the old listener: {error}")
            return []
        return ["the old listener responds"]

    async def _probe_password(self) -> list[str]:
        try:
            async with Roles(self._secured(_OF_PAGE, "wrong")).admin() as admin:
                await admin.describe_cluster()
        except AuthenticationFailed as error:
            self._say(f"  a wrong password: {error}")
            return []
        return ["a wrong password is accepted"]

    async def _probe_rights(self) -> list[str]:
        """Read a topic that the page's own user has no right to."""
        try:
            await read_committed_again(self._secured(_OF_PAGE, self._operator.password(_OF_PAGE)), names.INPUTS)
        except BrokerRefused as error:
            self._say(f"  a topic without a right: {error}")
            is_denied = error.refusal.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return [] if is_denied else [f"a topic without a right: {error}"]
        return ["a client reads a topic without a right"]

    def _new_denials(self) -> list[str]:
        found = []
        for broker in self._cluster.brokers:
            lines = [line for line in broker.log().splitlines() if _DENIED in line]
            found += lines[self._denials[broker.broker_id] :]
            self._denials[broker.broker_id] = len(lines)
        return found

    def _look_for_denials(self, result: LegResult) -> None:
        result.violations += [Violation("denied", line) for line in self._new_denials()]

    def _forget_denials(self) -> None:
        for line in self._new_denials():
            self._say(f"  {line}")

    # The way back

    async def _allow_everyone(self, result: LegResult) -> None:
        lines = [
            line
            for block in self._page[AUTHORIZER]
            if isinstance(block, Commands)
            for line in block.text.splitlines()
            if line.startswith(_EVERYONE)
        ]
        await self._run(Commands("\n".join(lines)))
        await self._loaded.settle(result, "with everyone's rights")
        self._forget_denials()

    async def _go_back(self, title: str, result: LegResult) -> None:
        await self._roll(result, self._former[title])
        self._look_for_denials(result)

    async def _move_clients_back(self, result: LegResult) -> None:
        self._loaded.roles.access = Access(self._cluster.bootstrap)
        for client in self._passwords:
            await self._loaded.load.move_client(client, self._loaded.roles.access)
            await self._loaded.settle(result, f"client {client} moved back")
