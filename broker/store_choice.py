"""Where the cluster's metadata lies: in the broker's own data directory, or in ZooKeeper (``zookeeper.connect``).

The embedded store is a journal in the data directory, for a broker that is alone. Over ZooKeeper a broker is a member
of a cluster; then the id and the password of its session lie in ``zookeeper-session`` in the (locked) data directory. A
broker that was killed left its session, and with it its registration, behind; when it starts again it takes that
session over and ends it, so that it can register at once. That file is the only licence to do so: a registration is
never removed because it has the same broker id.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, TypeAlias

from broker.config import BrokerConfig
from broker.metadata_journal import MetadataJournal
from broker.storage.disk import Disk
from coordinator.metadata_store.local import LocalEnsemble
from coordinator.metadata_store.store import MetadataStore, Session, SessionEvent
from coordinator.metadata_store.zookeeper_address import SessionCredentials

logger = logging.getLogger(__name__)

OnFailure: TypeAlias = Callable[[str], None]
OpenStore: TypeAlias = Callable[[BrokerConfig, Disk, AsyncExitStack, OnFailure], Awaitable[MetadataStore]]
"""Opens a store that is closed with the stack; ``OnFailure`` is told when it cannot go on."""

SESSION_FILE: Final = "zookeeper-session"


async def open_store(
    config: BrokerConfig, disk: Disk, resources: AsyncExitStack, on_failure: OnFailure
) -> MetadataStore:
    """The store that the configuration names. ``StoreUnavailable`` if ZooKeeper does not answer in time."""
    if config.is_embedded:
        return _open_embedded(config, disk, resources, on_failure)
    return await _open_zookeeper(config, disk, resources)


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
    from coordinator.metadata_store.zookeeper import connect_zookeeper, end_session

    session_ms = config.zookeeper_session_timeout_ms
    connection_ms = config.zookeeper_connection_timeout_ms or session_ms
    connect, kept = config.zookeeper_connect, _SessionFile(disk, config.data_dir)
    left = kept.read()
    if left is not None:
        await end_session(connect, left, session_timeout_ms=session_ms, connection_timeout_ms=connection_ms)
    store = await connect_zookeeper(connect, session_timeout_ms=session_ms, connection_timeout_ms=connection_ms)
    resources.push_async_callback(store.close)

    def on_session(event: SessionEvent, session: Session) -> None:
        if event is SessionEvent.STARTED:
            kept.write(store.credentials)

    kept.write(store.credentials)
    store.add_session_listener(on_session)
    return store


class _SessionFile:
    """``zookeeper-session``: the session's id and its password, in hexadecimal digits."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{SESSION_FILE}"

    def read(self) -> SessionCredentials | None:
        if not self._disk.exists(self._path):
            return None
        session_id, _, password = self._disk.read(self._path).decode("ascii", "replace").strip().partition(" ")
        try:
            return SessionCredentials(int(session_id, 16), bytes.fromhex(password))
        except ValueError:
            logger.warning("%s cannot be understood: the session before this one is left to expire", self._path)
            return None

    def write(self, credentials: SessionCredentials | None) -> None:
        if credentials is not None:
            content = f"{credentials.session_id:x} {credentials.password.hex()}\n"
            self._disk.write_atomic(self._path, content.encode())
