"""Writes the sink's record, in a transaction of the driver's own. The commit of it is the commit point of a batch.

A driver that was fenced cannot pass it: the coordinator refuses the driver's producer epoch.
"""

from typing import Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.sink_broker import FENCING, SinkBroker, retry_transient
from oncelog.spark_connector.sink.commit.sink_errors import BatchNotDecided, SinkFenced
from oncelog.spark_connector.sink.commit.sink_transactions import Driver, TaskTransaction, driver_id
from oncelog.spark_connector.sink.commit.state_record import StateRecord

_RIGHTS: Final = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ": its user needs Write on the transactional ids of {sink}",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ": its user needs Write on the state topic (stateTopic)",
}


async def take_over(broker: SinkBroker, sink: str) -> Driver:
    """Become the sink's driver: older drivers can decide nothing after it, and their decisions are in the log.

    Raises ``SinkFenced`` and ``BatchNotDecided``.
    """
    driver = await retry_transient(broker, lambda: broker.init_producer_id(driver_id(sink)))
    if isinstance(driver, ErrorCode):
        raise _error(sink, driver)
    return driver


async def write_state(broker: SinkBroker, driver: Driver, record: StateRecord, home: TopicPartition) -> Driver:
    """Write and commit a record in its home partition; return the driver with its next epoch or sequence.

    After any exception the record may be committed all the same: only a later ``take_over`` settles that.
    """
    version = await broker.transaction_version()
    error = await retry_transient(broker, lambda: broker.append_state(driver, record, home, version))
    if error is not ErrorCode.NONE:
        raise _error(record.sink, error)
    own = TaskTransaction(driver_id(record.sink), driver.producer_id, driver.epoch, version)
    ended = await _end(broker, own)
    if isinstance(ended, ErrorCode):
        raise _error(record.sink, ended)
    return ended if version >= 2 else driver._replace(sequence=driver.sequence + 1)


async def _end(broker: SinkBroker, own: TaskTransaction) -> Driver | ErrorCode:
    async def end() -> Driver | ErrorCode:
        (ended,) = await broker.end([own], commit=True)
        return Driver(ended.producer_id, ended.epoch) if ended.error is ErrorCode.NONE else ended.error

    return await retry_transient(broker, end)


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
    needed = _RIGHTS.get(error, "").format(sink=sink)
    return BatchNotDecided(f"sink {sink} cannot write its decision: the brokers return {error.name}{needed}")
