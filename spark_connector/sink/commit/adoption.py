"""Takes over what the same query or application has written under a former name of its sink.

A sink without a record looks for one under its former names, once: it fences that sink's driver, completes what it has
decided and aborts what it has not, as a prelude does, and goes on from its decision. The record under the former name
stays, and means nothing any more.
"""

from dataclasses import replace

from oncelog.spark_connector.sink.commit.decisions import take_over
from oncelog.spark_connector.sink.commit.endings import abort_all, decided_and_open, end_all, find_strays
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.sink_broker import SinkBroker
from oncelog.spark_connector.sink.commit.state_home import find_state
from oncelog.spark_connector.sink.commit.state_record import StateRecord


async def adopt(broker: SinkBroker, sink: str, former: FormerNames) -> StateRecord | None:
    """Return the last decision under a former name, as the first record of ``sink``; None if there is none."""
    adopted: list[StateRecord] = []
    for name in await broker.find_sinks(former):
        if name != sink:
            adopted += await _end_former(broker, name, former)
    if not adopted:
        return None
    newest = max(adopted, key=lambda state: state.batch)
    return replace(newest, sink=sink, generation=0)


async def _end_former(broker: SinkBroker, name: str, former: FormerNames) -> list[StateRecord]:
    state = (await find_state(broker, name, await take_over(broker, name))).state
    if state is None or not former.includes(state):
        return []
    opened = await broker.open_transactions(f"{name}.")
    await end_all(broker, decided_and_open(state, opened), commit=True)  # The batch's commit reports losses.
    await abort_all(broker, await find_strays(broker, state, state.generation, opened))
    return [state] if state.query else []
