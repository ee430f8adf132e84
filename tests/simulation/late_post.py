"""A network that holds requests back and delivers them when nobody expects them any more.

It stands between a client of transaction version 2 and the broker, as a proxy would. A request that it takes is
delivered once more later, over a connection of its own: moments later, or when its transaction is long over, or when
its client is dead. Some of those it does not let through at first: their client hears nothing and sends them again, so
that what comes late is the original. What arrives is the same bytes as ever, and what it is answered is counted.

Only requests of version 2 are taken, which the epoch of each transaction protects. Of version 1 it is known that a late
EndTxn may end the next transaction (KAFKA-17754); ``tests/interop`` shows that on real brokers.
"""

import asyncio
import random
from collections import Counter

from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.schema import Message
from tests.simulation import requests
from tests.simulation.wire_client import NoAnswer, WireClient

_TAKEN = {
    EndTxnRequest: requests.TRANSACTION_2_END_TXN_VERSION,
    ProduceRequest: requests.TRANSACTION_2_PRODUCE_VERSION,
    TxnOffsetCommitRequest: requests.TRANSACTION_2_TXN_OFFSET_COMMIT_VERSION,
}
_ATTEMPT_SECONDS = 0.1
_MOST_ATTEMPTS = 200


class LatePost:
    """What is on its way, and how what arrived was answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, rng: random.Random, *, probability: float) -> None:
        self.answers: Counter[str] = Counter()
        self._loop = loop
        self._port = port
        self._rng = rng
        self.probability = probability
        self._on_the_way: dict[asyncio.Task[None], None] = {}

    def take(self, request: Message, version: int) -> None:
        """Perhaps keep a copy. Raises NoAnswer if the original is held back, too."""
        oldest = _TAKEN.get(type(request))
        if oldest is None or version < oldest or self._rng.random() >= self.probability:
            return
        delay = self._rng.uniform(0.0, self._rng.choice([0.02, 0.3, 4.0]))
        task = self._loop.create_task(self._deliver(request, version, delay))
        self._on_the_way[task] = None
        if self._rng.random() < 0.5:
            raise NoAnswer("held back")

    async def empty(self) -> None:
        """Wait until everything has arrived."""
        while self._on_the_way:
            task, _ = self._on_the_way.popitem()
            await task

    async def _deliver(self, request: Message, version: int, delay: float) -> None:
        await asyncio.sleep(delay)
        for _ in range(_MOST_ATTEMPTS):
            try:
                client = await WireClient.connect(self._port)
                answer = await client.call(request, version)
            except NoAnswer:
                await asyncio.sleep(_ATTEMPT_SECONDS)
            else:
                client.close()
                self.answers[f"{type(request).__name__} {_error(answer).name}"] += 1
                return


def _error(answer: object) -> ErrorCode:
    match answer:
        case object(error_code=code):
            return ErrorCode(code)
        case object(responses=[topic]):
            return ErrorCode(topic.partition_responses[0].error_code)
        case object(topics=[topic, *_]):
            return ErrorCode(topic.partitions[0].error_code)
    raise AssertionError(answer)
