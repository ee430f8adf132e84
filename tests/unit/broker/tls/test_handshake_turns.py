"""Steps of handshakes take turns with everything else."""

import asyncio

from oncelog.broker.tls.handshake_turns import HandshakeTurns


async def test_other_work_runs_between_steps() -> None:
    turns = HandshakeTurns()
    order: list[str] = []

    def other() -> None:
        order.append("other")
        if order.count("step") < 5:
            asyncio.get_running_loop().call_soon(other)

    for _ in range(5):
        turns.add(lambda: order.append("step"))
    asyncio.get_running_loop().call_soon(other)
    for _ in range(20):
        await asyncio.sleep(0)
    assert order.count("step") == 5
    assert "step,step" not in ",".join(order)


async def test_step_may_add_a_step() -> None:
    turns = HandshakeTurns()
    done: list[str] = []

    def first() -> None:
        done.append("first")
        turns.add(lambda: done.append("second"))

    turns.add(first)
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["first", "second"]
