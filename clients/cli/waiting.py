"""A notice on standard error about what a command is waiting for, within seconds and once, in every command.

A client tries again by itself until the command's time is up, which may be for ever. Meanwhile a person should know
which address is meant and what happens there. ``Notices`` decides what to say and is pure; ``watching`` looks at the
clients of a command every ``_LOOK_SECONDS`` and prints it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.cli.remedies import remedy
from oncelog.clients.connection import Address
from oncelog.clients.errors import BrokerSilent, ClientError, Refusal, Unreachable
from oncelog.clients.obstacles import Obstacle

PATIENCE_SECONDS: Final = 3.0
"""How long an obstacle lasts before it is worth a word."""
_USUAL_SECONDS: Final = 12.0
"""The same for what may last a while in a healthy cluster."""
_STORE_SECONDS: Final = 8.0
"""The same for a change of metadata: by then it is known whether the metadata store responds."""
_KEPT_IN_STORE: Final = frozenset(
    f"no response to {change}"
    for change in (
        "AlterConfigs",
        "CreatePartitions",
        "CreateTopics",
        "DeleteTopics",
        "IncrementalAlterConfigs",
        "UpdateFeatures",
    )
)
_CLOSED: Final = "closed the connection"
"""How the reason of an obstacle begins where the other side ended the connection."""
_DELETION: Final = "no response to DeleteTopics"
_BESIDE_SECONDS: Final = 1.0
"""Obstacles that have lasted this number of seconds are reported together with one that is due."""
_LOOK_SECONDS: Final = 0.25

DOCTOR_ADVICE: Final = "`oncelog doctor` shows which advertised addresses this machine can use, and what to set instead"
STUCK_ADVICE: Final = (
    "the process there may be stopped, stuck or overloaded, or does not serve this security.protocol: see its output"
)
SECURITY_ADVICE: Final = (
    "`oncelog doctor` finds out what the listener speaks; --command-config FILE has security.protocol, and a client "
    "without it speaks PLAINTEXT"
)
_SECURITY: Final = "security.protocol"
"""In reasons that the wrong kind of listener may have."""
_NO_BROKER_THERE: Final = (
    "is a broker running there? `oncelog serve` starts one; --bootstrap or ONCELOG_BOOTSTRAP says where to look"
)
_NO_NAME: Final = (
    "see that the name is right, and that this machine can resolve it; --bootstrap or ONCELOG_BOOTSTRAP says where "
    "to look"
)
_SEVERAL: Final = "; of a cluster with several brokers name more than one: -b HOST:PORT,HOST:PORT"
_DELETION_ADVICE: Final = (
    "a broker with replicas of the topic may be away or paused: if the time is up before, the error names those that "
    "the deletion waits for"
)
BROKERS_ADVICE: Final = "`oncelog health` lists the brokers of the cluster, and the partitions without a leader"


class Client(Protocol):
    """What can be watched: ``Cluster``, ``Consumer`` and ``Producer``."""

    def obstacles(self) -> list[Obstacle]: ...

    def is_connected(self, address: Address) -> bool: ...


class StillWaiting(ClientError):
    """A command has timed out while it was waiting. ``advice`` says what can be done about it."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class Notice(NamedTuple):
    """A line for standard error, and what can be done about it."""

    text: str
    advice: str | None


def advice_without_broker(bootstrap: Collection[Address], *, is_silent: bool = False, reasons: str = "") -> str:
    """Return what to do when no broker responds at the addresses that the user has named. ``reasons``: why not."""
    if reasons.count(Unreachable.UNRESOLVED) >= len(bootstrap):
        return _NO_NAME
    if _SECURITY in reasons:
        return SECURITY_ADVICE
    advice = STUCK_ADVICE if is_silent else _NO_BROKER_THERE
    return advice + (_SEVERAL if len(bootstrap) == 1 else "")


@dataclass(slots=True, kw_only=True)
class Notices:
    """What has been said about a command's obstacles."""

    bootstrap: Collection[Address]
    _reported: dict[Address | str, Obstacle] = field(default_factory=dict)
    """What was said and is not over yet, by its subject."""

    def look(self, obstacles: Iterable[Obstacle], is_connected: Callable[[Address], bool]) -> list[Notice]:
        """Return what to say now."""
        current = _by_subject(obstacles)
        notices = self._over(current, is_connected)
        new = [each for subject, each in current.items() if subject not in self._reported]
        if any(_is_worth_a_word(each) for each in new):
            telling = [each for each in new if _is_worth_a_word(each) or _is_beside(each)]
            self._reported |= {_subject(each): each for each in telling}
            notices.append(Notice(f"Warning: still waiting: {self.describe(telling)}", self.advise(telling)))
        return notices

    def _over(self, current: Collection[Address | str], is_connected: Callable[[Address], bool]) -> list[Notice]:
        """Yield one notice when all reported obstacles are over."""
        reported = self._reported
        if not reported or any(subject in current for subject in reported):
            return []
        self._reported = {}
        reached = {subject for subject in reported if isinstance(subject, Address) and is_connected(subject)}
        back = [
            _name(each) for subject, each in reported.items() if subject in reached and not _may_wait_for_store(each)
        ]
        over = ", ".join(map(_awaited, reported.values()))
        what = f"reached again: {', '.join(back)}" if back else f"no longer waiting for {over}"
        return [Notice(f"Note: {what}", None)]

    def describe(self, obstacles: Collection[Obstacle]) -> str:
        """Return a sentence for each obstacle."""
        wrong = self._wrongly_advertised(obstacles)
        return "; ".join(_advertised_in_vain(each) if each in wrong else _sentence(each) for each in obstacles)

    def advise(self, obstacles: Collection[Obstacle]) -> str:
        """Return what can be done about these."""
        refused = next((each.advice for each in obstacles if each.advice), "")
        if refused:
            return refused
        if self._wrongly_advertised(obstacles):
            return DOCTOR_ADVICE
        if any(each.reason == _DELETION for each in obstacles):
            return _DELETION_ADVICE
        if any(each.is_connected and not each.reason.startswith(_CLOSED) for each in obstacles):
            return STUCK_ADVICE
        if any(each.address for each in obstacles):
            return advice_without_broker(self.bootstrap, reasons="; ".join(each.reason for each in obstacles))
        remedies = (remedy(Refusal(error=each.error)) for each in obstacles if each.error is not None)
        return next(filter(None, remedies), BROKERS_ADVICE)

    def _wrongly_advertised(self, obstacles: Collection[Obstacle]) -> list[Obstacle]:
        """Return advertised addresses that this machine does not reach, though it reaches those of the user."""
        if any(each.address in self.bootstrap for each in obstacles):
            return []
        return [each for each in obstacles if each.broker_id is not None and not each.is_connected]


def _advertised_in_vain(obstacle: Obstacle) -> str:
    where = f"at the address that it advertises, {obstacle.address}"
    return f"broker {obstacle.broker_id} cannot be reached {where}: {obstacle.reason}"


def _sentence(obstacle: Obstacle) -> str:
    name, reason = _name(obstacle), obstacle.reason
    if obstacle.address is None:
        return reason
    if obstacle.is_usual:
        return f"{name}: {reason}, since the group waits for other members"
    if reason.startswith(BrokerSilent.EVENT):  # The advice has the causes.
        return f"{name} {reason.removesuffix(BrokerSilent.CAUSES)}"
    if reason == _DELETION:
        return f"{name}: {reason} yet, which waits for all brokers with replicas of the topic"
    if reason.startswith(_CLOSED):
        return f"{name} {reason}"
    if obstacle.advice:
        return f"{name} and this client do not accept each other: {reason}"
    if obstacle.is_connected:
        return f"{name} accepts connections and does not respond: {reason}"
    return f"{name} cannot be reached: {reason}"


def _by_subject(obstacles: Iterable[Obstacle]) -> dict[Address | str, Obstacle]:
    """Return, for each address, the obstacle that has lasted longest."""
    return {_subject(each): each for each in sorted(obstacles, key=lambda each: each.seconds)}


def _subject(obstacle: Obstacle) -> Address | str:
    return obstacle.reason if obstacle.address is None else obstacle.address


def _name(obstacle: Obstacle) -> str:
    if obstacle.address is None:
        return obstacle.reason
    return str(obstacle.address) if obstacle.broker_id is None else f"broker {obstacle.broker_id} at {obstacle.address}"


def _awaited(obstacle: Obstacle) -> str:
    """Return what has ended: a response, if it depends on others than the broker that sends it; else that broker."""
    return (
        obstacle.reason.replace("no response", "the response", 1) if _may_wait_for_store(obstacle) else _name(obstacle)
    )


def _is_worth_a_word(obstacle: Obstacle) -> bool:
    if obstacle.is_usual:
        return obstacle.seconds >= _USUAL_SECONDS
    return obstacle.seconds >= (_STORE_SECONDS if _may_wait_for_store(obstacle) else PATIENCE_SECONDS)


def _is_beside(obstacle: Obstacle) -> bool:
    return obstacle.seconds >= _BESIDE_SECONDS and not obstacle.is_usual and not _may_wait_for_store(obstacle)


def _may_wait_for_store(obstacle: Obstacle) -> bool:
    """Return whether ZooKeeper may be unresponsive, and not the broker, which is then not called stuck."""
    return obstacle.is_connected and obstacle.reason in _KEPT_IN_STORE


class Watch:
    """Looks at a command's clients."""

    def __init__(self, bootstrap: Collection[Address], say: Callable[[str, str | None], None]) -> None:
        self._notices = Notices(bootstrap=bootstrap)
        self._say = say
        self._clients: list[Client] = []

    def add(self, client: Client) -> None:
        """Add a client to those watched."""
        self._clients.append(client)

    async def run(self) -> None:
        """Print notices until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for notice in self._notices.look(self._obstacles(), self._is_connected):
                self._say(*notice)

    def _obstacles(self) -> list[Obstacle]:
        return [obstacle for client in self._clients for obstacle in client.obstacles()]

    def _is_connected(self, address: Address) -> bool:
        return any(client.is_connected(address) for client in self._clients)

    def is_hindered(self, seconds: float) -> bool:
        """Return whether an unusual obstacle has lasted for ``seconds``."""
        return any(each.seconds >= seconds and not each.is_usual for each in self._obstacles())

    def why(self, message: str = "") -> StillWaiting | None:
        """Return an error with ``message`` and the present obstacles; None if there are none."""
        found = list(_by_subject(each for each in self._obstacles() if not each.is_usual).values())
        if not found:
            return None
        sentences = self._notices.describe(found)
        return StillWaiting(f"{message}: {sentences}" if message else sentences, self._notices.advise(found))


@asynccontextmanager
async def watching(
    bootstrap: Collection[Address], say: Callable[[str, str | None], None], *clients: Client
) -> AsyncIterator[Watch]:
    """Watch the clients of a command while it runs."""
    tasks = BackgroundTasks("oncelog")
    watch = Watch(bootstrap, say)
    for client in clients:
        watch.add(client)
    tasks.spawn(watch.run(), "notices of obstacles")
    try:
        yield watch
    finally:
        await tasks.stop()
