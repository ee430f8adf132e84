"""The periodic checks of the partitions that a broker leads."""

import asyncio

import pytest

from oncelog.broker.replication.isr_changes import IsrProposal
from oncelog.broker.replication.isr_checks import IsrChecks
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import ME, OTHER, ReplicaSide


async def test_partition_whose_check_fails_keeps_no_other_from_its_own() -> None:
    """The supervisor gets the exception once all partitions have been checked."""
    proposed: list[int] = []

    def propose(proposal: IsrProposal) -> None:
        index = proposal.topic_partition.partition
        proposed.append(index)
        if index == 1:
            raise ZeroDivisionError

    broker = ReplicaSide(host={"propose_isr": propose, "replica_lag_time_max_ms": 1_000})
    broker.lead(count=3, replicas=(ME, OTHER), isr=(ME, OTHER))
    for index in range(3):
        broker.follower_fetched(0, index=index)
        broker.append(batch(), index=index)
    async with asyncio.timeout(10):
        with pytest.raises(ZeroDivisionError):
            await IsrChecks(broker.replica_manager, broker.metadata).run()
    assert proposed == [0, 1, 2]
