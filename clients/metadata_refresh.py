"""Keeps the metadata of a client's topics fresh: requested when something proves wrong, and at an interval.

One task sends the requests. Callers request metadata and get it by ``on_update``, or await ``fresh``. A response that
leaves something open (a topic that does not exist yet, a partition without a leader) is followed by the next request,
after a growing pause. A topic that does not exist may be a mistyped name: the log says so once, before brokers may
create it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError, error_code
from oncelog.clients.retry import Backoff
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_LEAST_SECONDS: Final = 0.02
"""Seconds between two requests: everything wanted meanwhile goes into one."""


class MetadataRefresh:
    """The Metadata requests of one client. ``topics`` returns their topics: None for all of them (a pattern)."""

    def __init__(
        self,
        cluster: Cluster,
        backoff: Backoff,
        topics: Callable[[], Collection[str] | None],
        on_update: Callable[[MetadataResponse], None],
        *,
        max_age_seconds: float,
        creates_topics: bool,
    ) -> None:
        self._cluster = cluster
        self._backoff = backoff
        self._topics = topics
        self._on_update = on_update
        self._max_age_seconds = max_age_seconds
        self._creates_topics = creates_topics
        self._requested = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self.errors: dict[str, ErrorCode] = {}
        """The errors of topics that a retry cannot mend: no permission, or an invalid name."""
        self._missing: frozenset[str] = frozenset()
        """Topics that were missing in the last response."""
        self._met: set[str] = set()
        """Topics that some response had, and those that the log has named as missing."""

    def request(self) -> None:
        """Request metadata soon."""
        self._requested.set()

    async def fresh(self) -> None:
        """Return when the response to a request that follows this call has been applied."""
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(applied)
        self._requested.set()
        await applied

    async def run(self) -> None:
        """Request metadata when it is due, until cancelled."""
        attempt = 0
        while True:
            await self._wait_until_due()
            is_settled = await self._refresh()
            if is_settled:
                attempt = 0
                await asyncio.sleep(_LEAST_SECONDS)
            else:
                await asyncio.sleep(self._backoff.pause_seconds(attempt))
                attempt += 1
                self._requested.set()

    async def _wait_until_due(self) -> None:
        try:
            async with asyncio.timeout(self._max_age_seconds):
                await self._requested.wait()
        except TimeoutError:
            pass

    def _note_missing(self, names: Iterable[str]) -> None:
        self._missing = frozenset(names)
        then = "; brokers may create it (allow_auto_create_topics)" if self._creates_topics else ""
        for name in sorted(self._missing - self._met):
            _log.warning("topic %s does not exist%s", name, then)
        self._met |= self._missing

    async def _refresh(self) -> bool:
        """Send one request. Return whether everything that it asks for is known."""
        self._requested.clear()
        waiting_before = len(self._waiting)
        names = self._topics()
        self._met |= self._cluster.metadata.topics.keys()
        creates = self._creates_topics and names is not None and not self._missing.isdisjoint(names)
        try:
            response = await self._cluster.refresh(names, create=creates)
        except ClientError as error:
            _log.info("metadata request failed: %s", error)
            return False
        except MemoryError:
            _log.exception("no memory for metadata")
            return False
        errors = {topic.name: error_code(topic.error_code) for topic in response.topics if topic.error_code}
        self.errors = {name: error for name, error in errors.items() if name and error not in RETRIABLE}
        self._note_missing(name for name, error in errors.items() if name and error is _UNKNOWN_TOPIC)
        self._on_update(response)
        waiting, self._waiting = self._waiting[:waiting_before], self._waiting[waiting_before:]
        for applied in waiting:
            if not applied.done():
                applied.set_result(None)
        leaderless = [
            TopicPartition(topic.name or "", partition.partition_index)
            for topic in response.topics
            for partition in topic.partitions
            if partition.leader_id < 0
        ]
        self._cluster.note_leaderless(leaderless if names is not None else [])
        return not leaderless and not any(error in RETRIABLE for error in errors.values())
