"""The health of a broker's session with the metadata store: its state, its expirations, the age of the last contact.

Without the store a broker goes on serving what it leads, but nothing of the cluster can change: no leader is elected,
no topic created, no ISR altered. Nothing of that is visible in the responses to clients, so it must be visible here.

Observe a store from its first session on; every other part of the broker reads.
"""

import asyncio
from enum import Enum
from typing import Final

from oncelog.coordinator.metadata_store.store import MetadataStore, Session, SessionEvent

WITHOUT_ZOOKEEPER: Final = (
    "clients go on reading and writing where the leader is alive, with acks=all only while every in-sync replica is "
    "alive; no leader can be elected, no topic, setting or ISR changed, and no broker can join, until ZooKeeper "
    "responds"
)
"""What an outage means, for operators."""


class SessionState(Enum):
    """The state of the session, by the names of ZooKeeper's clients."""

    CONNECTED = "the store responds"
    DISCONNECTED = "the store does not respond; the session may go on"
    EXPIRED = "there is no session: the last one is over, and no other has begun"


class SessionHealth:
    """The health of one store's session, by its events and responses."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._suspended_at: float | None = None
        self._last_contact = self._loop.time()
        """Of the sessions that are over."""
        self.expirations = 0
        """Sessions that ended while the broker still needed them."""
        self.disconnections = 0
        """Lost connections, including those after which the same session went on."""
        store.add_session_listener(self._on_session)

    @property
    def state(self) -> SessionState:
        session = self._store.session
        if session is None:
            return SessionState.EXPIRED
        was_suspended = self._suspended_at is not None and session.last_contact <= self._suspended_at
        return SessionState.CONNECTED if session.is_live() and not was_suspended else SessionState.DISCONNECTED

    @property
    def seconds_since_contact(self) -> float:
        """Return the seconds since the last request was sent that has a response."""
        session = self._store.session
        last_contact = self._last_contact if session is None else session.last_contact
        return max(0.0, self._loop.time() - last_contact)

    def _on_session(self, event: SessionEvent, session: Session) -> None:
        match event:
            case SessionEvent.SUSPENDED:
                self.disconnections += 1
                self._suspended_at = self._loop.time()
            case SessionEvent.ENDED:
                self.expirations += 1
                self._last_contact = session.last_contact
            case SessionEvent.STARTED | SessionEvent.RESUMED:
                self._suspended_at = None
