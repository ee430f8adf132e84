"""Producer ids that no two producers ever share, over all brokers and all restarts.

A broker reserves blocks of 1,000 ids from ``/latest_producer_id_block`` by compare-and-set and gives them out from
memory. What is left of a block when a broker stops is never used, and neither is a block whose reservation ended in a
lost connection: there are enough.

``next_nowait`` serves from the block; ``run``, in a task of the broker's, reserves the next block while the last one
runs low, so that requests rarely wait. Without it, or when it is too late, ``next`` reserves one itself.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import (
    Create,
    MetadataStore,
    Operation,
    Session,
    SetData,
    StoreUnavailable,
    Znode,
)
from oncelog.coordinator.metadata_store.znodes import ProducerIdBlock

logger = logging.getLogger(__name__)

BLOCK_SIZE: Final = 1_000
_LAST_PRODUCER_ID: Final = 2**63 - 1
_LOW_WATER: Final = 0.25


class ProducerIdsExhausted(Exception):
    """All of 2^63 ids are used up; or the znode was tampered with."""


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, store: MetadataStore, broker_id: int, *, block_size: int = BLOCK_SIZE) -> None:
        self._store = store
        self._broker_id = broker_id
        self._block_size = block_size
        self._ids: Iterator[int] = iter(())
        self._left = 0
        self._next_block: ProducerIdBlock | None = None
        self._reserving = asyncio.Lock()
        self._low = asyncio.Event()
        self._low.set()

    def next_nowait(self) -> int | None:
        """Return an id; None while the next block must be reserved first."""
        if self._left == 0 and self._next_block is not None:
            self._use(self._next_block)
            self._next_block = None
        if self._left == 0:
            self._low.set()
            return None
        self._left -= 1
        if self._left <= self._block_size * _LOW_WATER and self._next_block is None:
            self._low.set()
        return next(self._ids)

    async def next(self) -> int:
        """Return an id. Raises StoreUnavailable while none is left and no block can be reserved."""
        while (producer_id := self.next_nowait()) is None:
            await self._prepare_next_block()
        return producer_id

    async def run(self) -> None:
        """Keep a block in reserve, until cancelled. After a failure, the next id that is taken tries again."""
        while True:
            await self._low.wait()
            self._low.clear()
            try:
                await self._prepare_next_block()
            except StoreUnavailable as error:
                logger.warning("No producer ids can be reserved yet: %s", error)

    def _use(self, block: ProducerIdBlock) -> None:
        self._ids = iter(range(block.first, block.last + 1))
        self._left = block.last - block.first + 1

    async def _prepare_next_block(self) -> None:
        async with self._reserving:
            if self._next_block is None:
                self._next_block = await self._reserve()

    async def _reserve(self) -> ProducerIdBlock:
        """Reserve a block. A conflict means that another broker got one, so this ends."""
        while True:
            session = self._store.session
            if session is None:
                raise StoreUnavailable("there is no session with the metadata store")
            block = await self._try_to_reserve(session)
            if block is not None:
                logger.info("Reserved producer ids %d to %d", block.first, block.last)
                return block

    async def _try_to_reserve(self, session: Session) -> ProducerIdBlock | None:
        znode = await session.get(paths.LATEST_PRODUCER_ID_BLOCK)
        first = 0
        if znode is not None and znode.data:
            first = _last_reserved(znode) + 1
        block = ProducerIdBlock(broker_id=self._broker_id, first=first, last=first + self._block_size - 1)
        if block.last > _LAST_PRODUCER_ID:
            raise ProducerIdsExhausted(f"the last block ends at {first - 1}")
        data = znodes.encode_producer_id_block(block)
        write: Operation = Create(path=paths.LATEST_PRODUCER_ID_BLOCK, data=data)
        if znode is not None:
            write = SetData(path=paths.LATEST_PRODUCER_ID_BLOCK, data=data, version=znode.stat.version)
        result = await session.multi([write])
        return block if isinstance(result, list) else None


def _last_reserved(znode: Znode) -> int:
    """Return the last id that was ever reserved. Raises MalformedZnode: to guess could give an id out twice."""
    try:
        return znodes.decode_producer_id_block(znode.data).last
    except znodes.MalformedZnode as error:
        raise znodes.MalformedZnode(f"{paths.LATEST_PRODUCER_ID_BLOCK} is malformed: {error}") from error
