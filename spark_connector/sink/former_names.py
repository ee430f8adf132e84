"""Going on with what the same query or application has written under another name of its sink. Pure but for ``adopt``.

Former releases named a stream's sink after the text of ``checkpointLocation``, and a batch's after
``transactionalIdPrefix`` alone, whatever its application and topic. A sink without a record looks for one under such
names, once: fences that sink's driver, completes what it has decided and aborts what it has not, as a prelude does,
and takes its decision over. The record under the former name stays, and means nothing any more.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from oncelog.spark_connector.sink.decisions import take_over
from oncelog.spark_connector.sink.endings import abort_all, decided_and_open, end_all, find_strays
from oncelog.spark_connector.sink.sink_broker import SinkBroker
from oncelog.spark_connector.sink.state_home import find_state
from oncelog.spark_connector.sink.state_record import StateRecord

_AFTER_CHECKPOINT: Final = re.compile(r"[0-9a-f]{16}")
"""Names that former releases made of a checkpoint's location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """Where a sink may have been before: ``query`` is that of its records."""

    query: str
    names: tuple[str, ...]
    was_named_by_location: bool
    """Also under names made of a location that nobody knows any more."""

    def may_be(self, state: StateRecord) -> bool:
        """Whether a record is of the same query under a former name; one without any batch has no query yet."""
        if state.query == self.query:
            return state.sink in self.names or (
                self.was_named_by_location and _AFTER_CHECKPOINT.fullmatch(state.sink) is not None
            )
        return self.was_named_by_location and state.sink in self.names and state.query == ""


async def adopt(broker: SinkBroker, sink: str, former: Former) -> StateRecord | None:
    """What was decided under a former name, as the first record of ``sink``; None if there is nothing."""
    adopted: list[StateRecord] = []
    for name in await broker.find_sinks(former):
        if name != sink:
            adopted += await _end_former(broker, name, former)
    if not adopted:
        return None
    newest = max(adopted, key=lambda state: state.batch)
    return replace(newest, sink=sink, generation=0)


async def _end_former(broker: SinkBroker, name: str, former: Former) -> list[StateRecord]:
    state = (await find_state(broker, name, await take_over(broker, name))).state
    if state is None or not former.may_be(state):
        return []
    opened = await broker.open_transactions(f"{name}.")
    await end_all(broker, decided_and_open(state, opened), commit=True)  # The batch's own commit is who judges.
    await abort_all(broker, await find_strays(broker, state, state.generation, opened))
    return [state] if state.query else []
