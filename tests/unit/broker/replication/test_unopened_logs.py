"""Orders that wait for descriptors are carried out whatever one of them ends with."""

import asyncio
from typing import Any

import pytest

from oncelog.broker.replication.unopened_logs import DeferredState, UnopenedLogs
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time


@pytest.mark.parametrize("fails", [0, 1])
@in_virtual_time
async def test_deferred_state_that_raises_is_retried_and_delays_no_other(fails: int) -> None:
    orders = [
        DeferredState(TopicPartition("t", index), bytes(16), LeaderAndIsrPartitionState(), in_order=True)
        for index in range(3)
    ]
    carried_out: list[DeferredState] = []
    failing = [orders[fails]]
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    def carry_out(order: DeferredState) -> bool:
        if order in failing:
            failing.remove(order)
            raise ValueError("not foreseen")
        carried_out.append(order)
        return True

    unopened = UnopenedLogs(carry_out)
    for order in orders:
        unopened.keep(order, OSError(24, "Too many open files"))
    await asyncio.sleep(60)
    assert len(reported) == 1
    assert sorted(carried_out, key=lambda order: order.topic_partition) == orders
    assert len(unopened) == 0
