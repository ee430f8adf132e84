"""A network that holds requests back and delivers them when nobody expects them any more.

It stands between a client of transaction version 2 and the broker, as a proxy would. A request that it takes is
delivered once more later, over a connection of its own: moments later, or when its transaction is long over, or when
its client is dead. Some of those it does not let through at first: their client hears nothing and sends them again, so
that what comes late is the original. What arrives is the same bytes as ever, and its responses are counted.

Only requests of version 2 are taken, which the epoch of each transaction protects. Of version 1 it is known that a late
EndTxn may end the next transaction (KAFKA-17754); ``tests/interop`` shows that on real brokers.

Markers come late, too: a coordinator that does not know whether one has arrived sends it again (KIP-1228).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import Any

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.routes import Routes
from tests.simulation.wire_client import NoResponse, WireClient

_TAKEN = {
    EndTxnRequest: requests.TRANSACTION_2_END_TXN_VERSION,
    ProduceRequest: requests.TRANSACTION_2_PRODUCE_VERSION,
    TxnOffsetCommitRequest: requests.TRANSACTION_2_TXN_OFFSET_COMMIT_VERSION,
}
_ATTEMPT_SECONDS = 0.1


class LatePost:
    """What is on its way, and how what arrived was answered."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        routes: Routes,
        rng: random.Random,
        *,
        probability: float,
        repeats_markers: bool = True,
    ) -> None:
        """``repeats_markers``: only where a coordinator's epoch is its log's leader epoch, which a restart sees to."""
        self.responses: Counter[str] = Counter()
        self._loop = loop
        self._routes = routes
        self._rng = rng
        self.probability = probability
        self._repeats_markers = repeats_markers
        self._on_the_way: dict[asyncio.Task[None], None] = {}

    def take(self, request: Message, version: int) -> None:
        """Perhaps keep a copy. Raises NoResponse if the original is held back, too."""
        oldest = _TAKEN.get(type(request))
        if oldest is None or version < oldest or self._rng.random() >= self.probability:
            return
        self._later(self._deliver(request, version, self._delay()))
        if self._rng.random() < 0.5:
            raise NoResponse("held back")

    def repeat_marker(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Iterable[TopicPartition],
        *,
        commit: bool,
    ) -> None:
        """Perhaps write the markers of a transaction that is prepared or complete once more, later."""
        if self._repeats_markers and self._rng.random() < self.probability:
            marker = requests.marker(*producer, partitions, commit=commit)
            self._later(self._deliver_marker(transactional_id, marker))

    def _later(self, delivery: Coroutine[Any, Any, None]) -> None:
        self._on_the_way[self._loop.create_task(delivery)] = None

    async def empty(self) -> None:
        """Wait until everything has arrived."""
        while self._on_the_way:
            task, _ = self._on_the_way.popitem()
            await task

    def _delay(self) -> float:
        return self._rng.uniform(0.0, self._rng.choice([0.02, 0.3, 4.0]))

    async def _deliver(self, request: Message, version: int, delay: float) -> None:
        await asyncio.sleep(delay)
        response = await self._call(request, version)
        self.responses[f"{type(request).__name__} {_error(response).name}"] += 1

    async def _deliver_marker(self, transactional_id: str, marker: WritableTxnMarker) -> None:
        """As the present coordinator: one of an older epoch would be refused for that."""
        await asyncio.sleep(self._rng.uniform(0.0, self._rng.choice([0.02, 0.1, 0.3])))
        find = requests.metadata(TRANSACTION_STATE_TOPIC_NAME)
        log = requests.leader_epochs(await self._call(find, requests.METADATA_VERSION))
        marker.coordinator_epoch = log[partition_for(transactional_id, len(log))]
        request = WriteTxnMarkersRequest(markers=[marker])
        await self._deliver(request, requests.WRITE_TXN_MARKERS_VERSION, 0.0)

    async def _call(self, request: Message, version: int) -> Any:
        while True:
            try:
                client = await WireClient.connect(self._routes.port(request))
                response = await client.call(request, version)
            except NoResponse:
                self._routes.lost(request)
                await asyncio.sleep(_ATTEMPT_SECONDS)
            else:
                client.close()
                return response


def _error(response: object) -> ErrorCode:
    match response:
        case object(error_code=code):
            return ErrorCode(code)
        case object(responses=[topic]):
            return ErrorCode(topic.partition_responses[0].error_code)
        case object(markers=[marker]):
            return ErrorCode(marker.topics[0].partitions[0].error_code)
        case object(topics=[topic, *_]):
            return ErrorCode(topic.partitions[0].error_code)
    raise AssertionError(response)
