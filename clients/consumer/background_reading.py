"""What reads for a consumer between its polls: metadata requests, position lookups and fetches."""

from oncelog.clients.consumer.assigned_partitions import AssignedPartitions
from oncelog.clients.consumer.consumer_metadata import ConsumerMetadata
from oncelog.clients.consumer.fetcher import Fetcher
from oncelog.clients.consumer.position_lookup import PositionLookup
from oncelog.clients.consumer.wakeup import Wakeup


class BackgroundReading:
    """The reading of one consumer, driven by the calls of the application that wait for records or positions."""

    def __init__(
        self,
        partitions: AssignedPartitions,
        metadata: ConsumerMetadata,
        lookup: PositionLookup,
        fetcher: Fetcher,
        wakeup: Wakeup,
    ) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._lookup = lookup
        self._fetcher = fetcher
        self._wakeup = wakeup

    def begin_due(self) -> None:
        """Begin the position lookups and fetches that can be begun now."""
        if not self._partitions.has_all_positions:
            self._lookup.look_up()
        self._fetcher.find_sources()

    def fetch_more(self) -> None:
        """Fetch on: a poll may have made room in the buffer."""
        self._fetcher.fetch_more()

    def raise_failure(self) -> None:
        """Raise, once, what background tasks found and the application must know.

        Raises ``BackgroundTaskFailed``, ``BrokerRefused``, and what lookups raise of positions.
        """
        self._wakeup.raise_failure()
        self._metadata.raise_error()
        self._lookup.raise_failure()
