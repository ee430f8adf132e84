"""The two kinds of processes in a cluster: the command line of each, and when it is ready.

A broker writes a line with its address to standard output when it serves. ZooKeeper writes none, so it is polled.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.broker.config.listeners import checked_listeners
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import load_config
from oncelog.broker.local_cluster.member_process import Incarnation, MemberProcess, Refused, serve_command
from oncelog.broker.local_cluster.zookeeper_server import (
    LOG_NAME,
    CannotStart,
    ServerSecurity,
    is_serving,
    prepare_server,
)
from oncelog.broker.security.peer_security import PeerSecurity, read_peer_security

ZOOKEEPER: Final = "zookeeper"
_CHROOT: Final = "/oncelog"
_READY: Final = re.compile(r"\[KafkaServer id=\d+\] started \(oncelog [^)]*\) at [\w.-]+://([^,\s]+)")
_PAUSE_SECONDS: Final = 0.05
_LONGEST_SESSION_MS: Final = 40_000
"""ZooKeeper's own default, whose ticks are longer."""


class MemberSettings(NamedTuple):
    """The settings of one broker."""

    overrides: Sequence[str]
    """``key=value`` each."""
    file: Path | None = None
    """Properties, which the overrides precede."""


class ZooKeeperMember(MemberProcess):
    """The ZooKeeper server; its data is in ``directory/zookeeper``."""

    def __init__(
        self, directory: Path, port: int, security: ServerSecurity | None, announce: Callable[[str], None]
    ) -> None:
        self._directory = directory / ZOOKEEPER
        self._directory.mkdir(exist_ok=True)
        super().__init__(ZOOKEEPER, "ZooKeeper", self._directory / LOG_NAME, announce)
        self._port = port
        self._server_security = security

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def connect(self) -> str:
        """What brokers connect to: znodes below a path of their own, if strangers may not remove any."""
        return self.address if self._server_security is None else f"{self.address}{_CHROOT}"

    def command(self) -> list[str]:
        try:
            return prepare_server(
                self._directory, self._port, longest_session_ms=_LONGEST_SESSION_MS, security=self._server_security
            )
        except CannotStart as error:
            raise Refused(f"{self.title} cannot start: {error}") from None

    async def until_ready(self, incarnation: Incarnation) -> None:
        loop = asyncio.get_running_loop()
        look = partial(is_serving, self._port, by_tls=self._server_security is not None)
        while not await incarnation.until_exit(_PAUSE_SECONDS):
            if await loop.run_in_executor(None, look):
                return


class BrokerMember(MemberProcess):
    """One broker; its data is in ``directory/broker-ID``, its log beside it."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        port: int,
        zookeeper: str,
        settings: MemberSettings,
        announce: Callable[[str], None],
    ) -> None:
        """Start nothing yet."""
        place = directory / f"broker-{broker_id}"
        super().__init__(str(broker_id), f"broker {broker_id}", place.with_suffix(".log"), announce)
        self.broker_id = broker_id
        self._address = f"localhost:{port}"
        self._options = ["--broker-id", str(broker_id), "--port", str(port), "--data-dir", str(place)]
        self._options += ["--zookeeper", zookeeper]
        self._options += [word for setting in settings.overrides for word in ("--set", setting)]
        if settings.file is not None:
            self._options += ["--config", str(settings.file)]
        self.security = _security_of(zookeeper, settings)
        """What a connection to it needs."""

    @property
    def address(self) -> str:
        """The first that it advertises."""
        return self._address

    def command(self) -> list[str]:
        return serve_command(*self._options)

    async def until_ready(self, incarnation: Incarnation) -> None:
        ends: list[asyncio.Future[Any]] = [incarnation.first_line, incarnation.exited]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if incarnation.first_line.done():
            said = _READY.match(incarnation.first_line.result())
            if said is None:
                raise Refused(f"{self.title} wrote {incarnation.first_line.result()!r} and not that it serves")
            self._address = said[1]


def _security_of(zookeeper: str, settings: MemberSettings) -> PeerSecurity:
    """Return what brokers with these settings need among each other; nothing if they refuse them when they start."""
    overrides = [f"zookeeper.connect={zookeeper}", *settings.overrides]
    try:
        properties = "" if settings.file is None else settings.file.read_text()
        config = load_config(properties=properties, overrides=overrides).config
        return read_peer_security(config, checked_listeners(config))
    except (ConfigError, OSError):
        return PeerSecurity()
