"""Writing the sink's record: a transaction of the driver's own, begun and ended here. With its end the record counts.

It is the commit point of a batch. Whoever has been fenced cannot pass it: the coordinator refuses the driver's epoch.
"""

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.sink_broker import FENCING, SinkBroker, insist
from oncelog.spark_connector.sink.commit.sink_errors import BatchNotDecided, SinkFenced
from oncelog.spark_connector.sink.commit.sink_transactions import Driver, TaskTransaction, driver_id
from oncelog.spark_connector.sink.commit.state_record import StateRecord


async def take_over(broker: SinkBroker, sink: str) -> Driver:
    """Become the sink's driver: from here on no other can decide anything, and what it has decided is in the log."""
    answer = await insist(broker, lambda: broker.init_producer_id(driver_id(sink)))
    if isinstance(answer, ErrorCode):
        raise _error(sink, answer)
    return answer


async def write_state(broker: SinkBroker, driver: Driver, record: StateRecord, home: TopicPartition) -> Driver:
    """Write and commit a record in its home partition; return the driver as it goes on.

    After any exception it may still be committed: only a driver that has taken over since can tell.
    """
    version = await broker.transaction_version()
    error = await insist(broker, lambda: broker.append_state(driver, record, home, version))
    if error is not ErrorCode.NONE:
        raise _error(record.sink, error)
    own = TaskTransaction(driver_id(record.sink), driver.producer_id, driver.epoch, version)
    ended = await _end(broker, own)
    if isinstance(ended, ErrorCode):
        raise _error(record.sink, ended)
    return ended if version >= 2 else driver._replace(sequence=driver.sequence + 1)


async def _end(broker: SinkBroker, own: TaskTransaction) -> Driver | ErrorCode:
    async def ask() -> Driver | ErrorCode:
        (ended,) = await broker.end([own], commit=True)
        return Driver(ended.producer_id, ended.epoch) if ended.error is ErrorCode.NONE else ended.error

    return await insist(broker, ask)


def _error(sink: str, error: ErrorCode) -> SinkFenced | BatchNotDecided:
    if error in FENCING:
        return SinkFenced(
            f"another driver has taken over sink {sink} ({error.name}): is the same query running a second time, or "
            "another one with the same transactionalIdPrefix or checkpointLocation?"
        )
    if error is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return BatchNotDecided(
            "transactionTimeoutMs: is longer than the brokers allow; it may be up to their transaction.max.timeout.ms"
        )
    return BatchNotDecided(f"sink {sink} cannot decide, the brokers say {error.name}")
