"""One run: a client, a broker, a seed."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from oncelog.protocol.api_keys import ApiKey
from tests.frame_proxy.proxy_thread import ProxyThread
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.late_frames.client import NEVER_GIVES_UP, PhasedClient
from tests.interop.late_frames.faults import Kind
from tests.interop.late_frames.observation import await_group_coordinator, observe
from tests.interop.late_frames.script import LateFrames
from tests.interop.late_frames.verdict import Verdict, judge
from tests.interop.late_frames.workload import (
    PARTITIONS,
    Outcome,
    producers_that_gave_up,
    transactions,
    with_outcomes,
)

PRODUCERS = 4
TRANSACTIONS_EACH = 110
FAULTS = 1_200
LATE_APIS = (ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)
"""A thousand faults at least are of these; the others are of TxnOffsetCommit and AddOffsetsToTxn."""
_VERSION_2_END_TXN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was done, and what came of it."""

    seed: int
    protocol_version: int
    """Of the transactions on the wire: 1 or 2."""
    faults: Counter[tuple[Kind, ApiKey]]
    responses: Counter[tuple[ApiKey, int, str]]
    outcomes: Counter[Outcome]
    verdict: Verdict

    @property
    def late_frames(self) -> int:
        """How many of ``LATE_APIS``."""
        return sum(count for (_, api), count in self.faults.items() if api in LATE_APIS)


def rounds(seed: int, frames: int) -> list[tuple[int, int]]:
    """Return the runs, each a seed and its late frames, that have ``frames`` in all: at most ``FAULTS`` in each.

    A client's time limits are for one run.
    """
    firsts = range(0, frames, FAULTS)
    return [(seed + number, min(FAULTS, frames - first)) for number, first in enumerate(firsts)]


def run(
    client: PhasedClient,
    broker_address: str,
    topic: str,
    seed: int,
    *,
    each: int = TRANSACTIONS_EACH,
    faults: int = FAULTS,
) -> Run:
    """Run ``each`` transactions of every producer through a proxy and judge what is left. ``topic`` must not exist.

    At most ``faults`` frames are late.
    """
    ConfluentKafka().create_topic(broker_address, topic, PARTITIONS)
    asyncio.run(await_group_coordinator(broker_address, topic))
    work = transactions(seed, PRODUCERS, each)
    script = LateFrames(seed, topic, faults // PRODUCERS, gives_batches_up=client.name not in NEVER_GIVES_UP)
    with ProxyThread(broker_address, script) as proxy:
        lines = client.run_phases(proxy.address, topic, topic, work)
        proxy.deliver_remaining()
    ended = with_outcomes(work, lines)
    given_up = producers_that_gave_up(ended)
    observed = asyncio.run(observe(broker_address, topic, PARTITIONS, PRODUCERS, given_up))
    versions = proxy.record.versions(ApiKey.END_TXN)
    return Run(
        seed=seed,
        protocol_version=2 if versions == {_VERSION_2_END_TXN} else 1,
        faults=script.faults,
        responses=script.responses,
        outcomes=Counter(outcome for _, outcome in ended),
        verdict=judge(ended, observed),
    )
