"""A transaction coordinator whose followers are silent, so that a successor may decide what it does not know of."""

from functools import partial

from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.world import world

INVOICES = TopicPartition("invoices", 0)
TIMEOUT_MS = 60_000
SWEEP = TransactionConfig().abort_timed_out_interval_ms / 1000


def test_deserted_coordinator_decides_nothing() -> None:
    """Its successor may have ended this transaction and begun the next: no batch enters, no producer is fenced."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.log.is_deserted = True
        size, away = len(w.log.batches), ErrorCode.COORDINATOR_NOT_AVAILABLE
        stale = ProducerIdAndEpoch(producer.id, producer.epoch - 1)
        partitions = frozenset({INVOICES})
        for asks in (producer, stale):
            assert w.add(asks, INVOICES).response is w.end(asks).response is away
            assert w.do(partial(w.coordinator.verify_partitions, "id", asks, partitions)) == {INVOICES: away}
        assert w.init().response.error is away
        assert len(w.log.batches) == size


def test_transaction_does_not_time_out_while_its_own_end_is_refused() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.log.is_deserted = True
        w.sleep(TIMEOUT_MS / 1000 + 3 * SWEEP)
        w.log.is_deserted = False
        assert w.end(producer).response is ErrorCode.NONE
        assert w.described().state is TransactionState.COMPLETE_COMMIT
