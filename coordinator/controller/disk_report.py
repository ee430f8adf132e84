"""The report of this broker to the controller that its disk is full, or has room again.

It names only the broker; the responses to LeaderAndIsr say which (``full_disks`` is the controller's side).
"""

import asyncio
from typing import Final

from oncelog.coordinator.controller.event_queue import EventQueue
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import MetadataStore, StoreUnavailable

_AGAIN_SECONDS: Final = 1.0


class DiskReport:
    """Reports of one broker, each of them work of its controller's queue."""

    def __init__(self, broker_id: int, store: MetadataStore, queue: EventQueue) -> None:
        self._broker_id = broker_id
        self._store = store
        self._queue = queue

    def send(self) -> None:
        """Report that the state of this broker's disk has changed."""
        self._queue.cluster.put("report the disk", self._write)

    async def _write(self) -> None:
        if self._store.session is None:
            return  # The broker registers again with its next session, and gets its leaderships then.
        try:
            data = znodes.encode_log_dir_event(self._broker_id)
            await self._store.session.create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", data, sequential=True)
        except StoreUnavailable:
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.send)
