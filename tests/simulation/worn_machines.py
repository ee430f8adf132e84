"""Faults of one machine's disk and clock: what a broker has to detect by itself, or to live with.

Bit rot befalls the log of a broker that is down, at a byte that the CRC of a batch covers, so that recovery must find
it; rot below the recovery point, and of what no CRC covers (the leader epoch of a batch), is not detected, as in Kafka.
A copy that has rotten or lost its end counts as damaged: no other one is damaged until all replicas are equal again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from oncelog.protocol.records.record_batch import iter_batches
from tests.simulation.harsh_faults import DamagedCopy
from tests.simulation.journal import current_journal
from tests.simulation.lost_log_ends import lose_end
from tests.simulation.simulated_cluster import ClusterBroker

_UNCRC: Final = 21
"""Bytes of a batch that its CRC covers begin here."""
_SKEW_MS: Final = 1_000
_JUMP_MS: Final = 600_000
_CHECKPOINT_SECONDS: Final = 5.0
_Care: TypeAlias = Callable[[ClusterBroker], Awaitable[None]]


class WornMachines:
    """Each method is a fault of one broker that is over when the method returns."""

    def __init__(self, damaged: DamagedCopy, *, start: _Care, restart: _Care) -> None:
        self._damaged = damaged
        self._start = start
        self._restart = restart

    async def shorten_write(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Let one write to a log take only its first bytes, which no full disk explains."""
        if broker.broker is not None:
            broker.disk.shorten_append(rng.choice([".log", "index", ".timeindex"]), rng.choice([0, 1, 50, 400]))
            await asyncio.sleep(rng.choice([0.1, 1.0]))
            await self._bring_back(broker)

    async def slow_down(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Let calls off the loop, such as fsync, take up to seconds."""
        longest = rng.choice([0.02, 0.3, 3.0])

        async def delay() -> None:
            current_journal().note(broker.disk.name, "slow disk call")
            await asyncio.sleep(longest * rng.random())

        broker.disk.delay = delay
        await asyncio.sleep(rng.choice([0.5, 3.0, 8.0]))
        broker.disk.delay = None

    async def fail_reads(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Let some reads of logs raise EIO; the broker stops, and is started again."""
        if broker.broker is not None:
            broker.disk.fail("read", rng.choice([".log", ".log", "index", ""]), times=rng.choice([1, 3]))
            await asyncio.sleep(rng.choice([0.1, 1.0]))
            await self._restart(broker)

    async def rot(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Kill the broker, flip one bit of the end of a log, and start the broker again."""
        await self._damage(broker, rng, lambda: flip_bit(broker, rng))

    async def lose_end(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Kill the broker, take the end of a log or all of it away, and start the broker again."""
        await asyncio.sleep(rng.choice([0.5, 1.1]) * _CHECKPOINT_SECONDS)  # What nothing is known of is not lost.
        await self._damage(broker, rng, lambda: lose_end(broker.disk, rng))

    async def _damage(self, broker: ClusterBroker, rng: random.Random, damage: Callable[[], None]) -> None:
        if broker.broker is None or not self._damaged.may_begin():
            return
        self._damaged.begin()
        broker.kill()
        damage()
        await asyncio.sleep(rng.choice([0.0, 0.3, 2.0]))
        await self._start(broker)
        self._damaged.repair()

    async def skew_clock(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Put the wall clock forward or back by less than a second."""
        broker.jump_clock(rng.randint(-_SKEW_MS, _SKEW_MS), "clock skew")

    async def jump_clock(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Put the wall clock forward or back by minutes; time-outs in wall-clock time are late by as much."""
        broker.jump_clock(rng.randint(-_JUMP_MS, _JUMP_MS), "clock jump")

    async def _bring_back(self, broker: ClusterBroker) -> None:
        """Restart a broker that cannot go on."""
        if broker.broker is None or broker.broker.failure.done():
            await self._restart(broker)


def flip_bit(broker: ClusterBroker, rng: random.Random) -> None:
    """Change a bit that a CRC covers, in the last segment of one of the broker's logs, if there is any batch."""
    disk = broker.disk
    logs = [
        f"/data/{name}/{segments[-1]}"
        for name in disk.list_dir("/data")
        if disk.is_dir(f"/data/{name}")
        and (segments := [file for file in disk.list_dir(f"/data/{name}") if file.endswith(".log")])
    ]
    candidates = [path for path in logs if disk.file_size(path) > 0]
    if not candidates:
        return
    path = rng.choice(candidates)
    data = disk.read(path)
    position, header = rng.choice(list(iter_batches(memoryview(data))))
    offset = position + rng.randrange(_UNCRC, header.size)
    current_journal().note(disk.name, "bit rot", f"{path} at {offset}")
    file = disk.open(path)
    file.write_at(bytes([data[offset] ^ (1 << rng.randrange(8))]), offset)
    file.close()
