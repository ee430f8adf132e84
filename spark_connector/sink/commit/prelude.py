"""The prelude: the driver's steps before the tasks of each batch. Spark does not pass it the batch's number.

It fences older drivers, and reads the sink's record after that: so it reads the last decision, and only this driver can
decide later. Then it commits the decided transactions and aborts the others; no task of this driver runs yet.
"""

import logging
from dataclasses import dataclass
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.adoption import adopt
from oncelog.spark_connector.sink.commit.decisions import take_over, write_state
from oncelog.spark_connector.sink.commit.endings import abort_all, decided_and_open, end_all, find_strays
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.sink_broker import SinkBroker
from oncelog.spark_connector.sink.commit.sink_errors import NO_STATE
from oncelog.spark_connector.sink.commit.sink_transactions import NO_DRIVER, Driver
from oncelog.spark_connector.sink.commit.state_home import find_state
from oncelog.spark_connector.sink.commit.state_record import NO_BATCH, StateRecord

_log = logging.getLogger(__name__)
_NO_HOME: Final = TopicPartition("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What a batch's tasks and its commit get: the driver that may decide, and the last decision. Picklable."""

    sink: str
    generation: int
    driver: Driver
    decided_query: str = ""
    decided_batch: int = NO_BATCH
    decided_until: str = ""
    """Where the sources of the decided batch end; empty if it is not known."""
    decided_has_content: bool = False
    """Whether the decision has the content of the batch, to compare it with a repetition."""
    plans_name_rows: bool = False
    """Whether the batch's offsets determine its rows, so that tasks need not digest them."""
    requires_decisions: bool = False
    """Whether batches after the first one are refused if no decision of their query is known (``is_unaccounted``)."""
    home: TopicPartition = _NO_HOME
    """The partition of the state topic that has the sink's record."""
    state_position: int = 0
    """The position up to which that partition was read for this permit."""

    @property
    def may_decide(self) -> bool:
        """Whether there is a driver: a batch without a name has none."""
        return self.driver != NO_DRIVER

    def is_decided(self, query: str, batch: int) -> bool:
        """Return whether this batch was decided before its tasks began."""
        return self.decided_query == query and self.decided_batch == batch

    def digests_rows(self, query: str, batch: int) -> bool:
        """Return whether tasks have to digest their rows, written or skipped."""
        if self.is_decided(query, batch):
            return self.decided_has_content
        return self.may_decide and not self.plans_name_rows

    def is_unaccounted(self, query: str, batch: int) -> bool:
        """Return whether no decision of earlier batches is known: then this one may have been written before."""
        return self.requires_decisions and batch > 0 and self.decided_query != query

    def is_behind(self, query: str, batch: int) -> bool:
        """Return whether a later batch was decided: then other rows had this number before, and it must not run."""
        return self.decided_query == query and self.decided_batch > batch


async def begin_batch(
    broker: SinkBroker,
    sink: str,
    former: FormerNames | None = None,
    *,
    plans_name_rows: bool = False,
    requires_decisions: bool = False,
) -> Permit:
    """Fence older drivers, commit, clean up; return the permit. Raises ``SinkFenced`` if another driver takes over."""
    driver = await take_over(broker, sink)
    state, home = await find_state(broker, sink, driver)
    if state is None and former is not None:
        state = await adopt(broker, sink, former)
    if state is None and driver.epoch > 0:
        _log.warning(NO_STATE, sink, home.topic)
    position = broker.state_position(sink, home)
    state = state or StateRecord(sink=sink)
    opened = await broker.open_transactions(f"{sink}.")
    await end_all(broker, decided_and_open(state, opened), commit=True)  # The batch's commit reports losses.
    leftovers = await find_strays(broker, state, state.generation, opened)
    await abort_all(broker, leftovers)
    if leftovers or not state.is_followed_by(driver):
        state = state.in_next_generation()
        driver = await write_state(broker, driver, state, home)
    return Permit(
        sink=sink,
        generation=state.generation,
        driver=driver,
        decided_query=state.query,
        decided_batch=state.batch,
        decided_until=state.planned.offsets,
        decided_has_content=state.content is not None,
        plans_name_rows=plans_name_rows,
        requires_decisions=requires_decisions,
        home=home,
        state_position=position,
    )
