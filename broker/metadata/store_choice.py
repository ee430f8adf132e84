"""Where the cluster's metadata lies: in the broker's own data directory, or in ZooKeeper (``zookeeper.connect``).

The embedded store is a journal in the data directory, for a standalone broker. Over ZooKeeper a broker is a member
of a cluster; then the id and the password of its session lie in ``zookeeper-session`` in the (locked) data directory. A
broker that was killed left its session, and with it its registration, behind; when it starts again it takes that
session over and ends it, so that it can register at once. That file, in the directory that it was written in, is the
only licence to do so (``session_file``): a registration is never removed because it has the same broker id.

What protects the connection to ZooKeeper, and the znodes, is in ``oncelog.broker.config.zookeeper_config``.

A data directory whose metadata lies in the other place is refused before anything is written to it: by metadata that
knows nothing of its partitions, all of them would be set aside.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeAlias

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.zookeeper_config import zookeeper_access
from oncelog.broker.metadata.metadata_journal import MetadataJournal, has_metadata
from oncelog.broker.metadata.session_file import SESSION_FILE, SessionFile
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.log_files import parse_directory_name
from oncelog.coordinator.metadata_store.local import LocalEnsemble
from oncelog.coordinator.metadata_store.session_health import WITHOUT_ZOOKEEPER
from oncelog.coordinator.metadata_store.store import MetadataStore, Session, SessionEvent
from oncelog.coordinator.metadata_store.znode_access import PROTECTED_ROOTS, SECRET_ROOTS
from oncelog.coordinator.metadata_store.zookeeper_address import ROOT
from oncelog.coordinator.metadata_store.zookeeper_security import ZooKeeperSecurity

if TYPE_CHECKING:
    from oncelog.coordinator.metadata_store.zookeeper import ZooKeeperSession

logger = logging.getLogger(__name__)

_OPEN: Final = (
    "zookeeper.set.acl=true protects znodes that are created from now on; everybody who reaches ZooKeeper can still "
    "change or remove what is at %s: `oncelog znodes protect` protects what is there"
)

OnFailure: TypeAlias = Callable[[str], None]
OpenStore: TypeAlias = Callable[[BrokerConfig, Disk, AsyncExitStack, OnFailure], Awaitable[MetadataStore]]
"""Opens a store that is closed with the stack; ``OnFailure`` is called when it cannot continue."""


async def open_store(
    config: BrokerConfig, disk: Disk, resources: AsyncExitStack, on_failure: OnFailure
) -> MetadataStore:
    """Open the store that the configuration names.

    Raises ``ConfigError`` if the data directory belongs to the other one, or a file of keys cannot be used, and
    ``StoreUnavailable`` if ZooKeeper does not respond in time, or does not work with this broker.
    """
    refusal = _why_not_here(config, disk)
    if refusal is not None:
        raise ConfigError(refusal)
    if config.is_embedded:
        return _open_embedded(config, disk, resources, on_failure)
    return await _open_zookeeper(config, disk, resources)


def _why_not_here(config: BrokerConfig, disk: Disk) -> str | None:
    """Return why the metadata of the data directory cannot lie where the configuration says; None if it can."""
    directory, names = config.data_dir, disk.list_dir(config.data_dir)
    if not config.is_embedded:
        if has_metadata(names) and SESSION_FILE not in names:
            return (
                f"{directory} belongs to a standalone broker (it has a metadata journal), but zookeeper.connect is "
                "set: leave that out (--zookeeper), or choose an empty log.dirs (--data-dir)"
            )
        return None
    if SESSION_FILE in names:
        return (
            f"{directory} belongs to a member of a cluster (it has {SESSION_FILE}), but zookeeper.connect is not set: "
            f"set it (--zookeeper), or choose another log.dirs (--data-dir), or remove {SESSION_FILE} if this broker "
            "has never been a member of a cluster"
        )
    if not has_metadata(names) and any(
        parse_directory_name(name) is not None and disk.is_dir(f"{directory}/{name}") for name in names
    ):
        return (
            f"{directory} has partitions but no metadata journal, and zookeeper.connect is not set: set it "
            "(--zookeeper) if this broker is a member of a cluster, else restore the journal (metadata-*.journal, "
            "metadata.snapshot), or choose another log.dirs (--data-dir)"
        )
    return None


def _open_embedded(config: BrokerConfig, disk: Disk, resources: AsyncExitStack, on_failure: OnFailure) -> MetadataStore:
    journal = MetadataJournal(disk, config.data_dir)
    ensemble = LocalEnsemble(journal)
    resources.callback(journal.close)
    store = ensemble.connect()
    resources.push_async_callback(store.close)

    def on_session(event: SessionEvent, session: Session) -> None:
        if ensemble.failure is not None:
            on_failure(f"the metadata journal failed: {ensemble.failure}")

    store.add_session_listener(on_session)
    return store


async def _open_zookeeper(config: BrokerConfig, disk: Disk, resources: AsyncExitStack) -> MetadataStore:
    from oncelog.coordinator.metadata_store.zookeeper import PATIENCE_SECONDS, connect_zookeeper, end_session

    session_ms = config.zookeeper_session_timeout_ms
    connection_ms = config.zookeeper_connection_timeout_ms or session_ms
    connect, left = config.zookeeper_connect, SessionFile(disk, config.data_dir).read()
    security = zookeeper_security(config)

    def on_wait(trouble: str) -> None:
        said = "ZooKeeper at %s (zookeeper.connect) has not responded for %g s%s: trying for %g s in all"
        logger.warning(said, connect, PATIENCE_SECONDS, trouble, connection_ms / 1000)

    if left is not None:
        await end_session(
            connect,
            left,
            session_timeout_ms=session_ms,
            connection_timeout_ms=connection_ms,
            security=security,
            on_wait=on_wait,
        )
    store = await connect_zookeeper(
        connect,
        session_timeout_ms=session_ms,
        connection_timeout_ms=connection_ms,
        security=security,
        on_wait=on_wait,
    )
    resources.push_async_callback(store.close)
    if security.protects_znodes and store.session is not None:
        await _warn_of_open_znodes(store.session)
    outages = OutageLog(connect)
    resources.callback(outages.stop)
    store.add_session_listener(outages.on_session)
    return store


def zookeeper_security(config: BrokerConfig) -> ZooKeeperSecurity:
    """Return what protects the connection to ZooKeeper. Raises ``ConfigError``, also for files that cannot be used."""
    from oncelog.broker.security.zookeeper_tls import ZooKeeperTls

    access = zookeeper_access(config)
    return ZooKeeperSecurity(
        tls=None if access.tls is None else ZooKeeperTls(access.tls),
        login=access.login,
        protects_znodes=access.protects_znodes,
    )


async def _warn_of_open_znodes(session: "ZooKeeperSession") -> None:
    """Log whether what was there before znodes were protected is open still; its place decides who can remove it."""
    found = [path for path in (ROOT, *PROTECTED_ROOTS, *SECRET_ROOTS) if await session.is_open(path)]
    if found:
        logger.warning(_OPEN, ", ".join(found))


class OutageLog:
    """Logs once that ZooKeeper is lost, with the consequence, and once that it responds again."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self._lost_at: float | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Expect the end of the session: the broker is about to end it itself."""
        self._is_stopped = True

    def on_session(self, event: SessionEvent, session: Session) -> None:
        now = asyncio.get_running_loop().time()
        if self._is_stopped:
            return
        if event is SessionEvent.SUSPENDED or (event is SessionEvent.ENDED and self._lost_at is None):
            if self._lost_at is None:
                logger.warning("The connection to ZooKeeper at %s is lost: %s", self._connect, WITHOUT_ZOOKEEPER)
                self._lost_at = now
        elif event is SessionEvent.ENDED:
            logger.warning("The session with ZooKeeper has expired: this broker registers anew when ZooKeeper responds")
        elif self._lost_at is not None:
            logger.info("ZooKeeper responds again, after %.1f s", now - self._lost_at)
            self._lost_at = None
