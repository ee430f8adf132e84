"""The abort of an open transaction of a partition, after which partition, coordinator and group offsets agree.

``plan_abort`` distinguishes three cases by the coordinator's description:

* The transaction is ongoing there, with this partition. An abort marker in this partition alone would tear the
  transaction: the producer could still commit the rest. So its coordinator aborts it, on every partition and in every
  group, by fencing its producer (``oncelog.clients.admin.fencing``).
* The end is decided, and the coordinator is about to write the marker. It may be a commit: no marker is written.
* No coordinator has this partition in a transaction: it hangs. Only then the marker is written to the partition.

Kafka's tool always writes the marker. In a transaction that does not hang, the partition then loses records that the
producer commits.

Before the plan is carried out, the coordinator is described again. A producer of transaction version 1 that continues
with the epoch of the hanging transaction could add the partition right after that; ``verify_abort`` reports then that
its coordinator has the partition again. In version 2 it cannot happen: each transaction has its own epoch.
"""

from dataclasses import dataclass
from enum import Enum

from oncelog.clients.admin.fencing import Fencing, force_terminate_transaction
from oncelog.clients.admin.hanging_transactions import OpenTransaction, coordinators_know, open_transactions
from oncelog.clients.admin.transactions import ONGOING, TransactionDescription
from oncelog.clients.admin.txn_markers import AbortMarker, write_abort_marker
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition


class AbortAction(Enum):
    """The way to abort a transaction."""

    FENCE = "its coordinator aborts it everywhere, and its producer is fenced"
    WAIT = "nothing: its coordinator has decided how it ends, and is about to tell this partition"
    MARKER = "an abort marker is written to this partition: no coordinator has it in a transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortPlan:
    """An open transaction, its coordinator's description, and the action."""

    open: OpenTransaction
    coordinator_says: TransactionDescription | None
    action: AbortAction

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the abort."""
        if self.action is AbortAction.FENCE and self.coordinator_says is not None:
            return self.coordinator_says.partitions
        return (self.open.topic_partition,)


def plan_abort(open_transaction: OpenTransaction, coordinator_says: TransactionDescription | None) -> AbortPlan:
    """Decide by the description of the transactional id with the producer id; None if there is none."""
    if coordinator_says is None or open_transaction.topic_partition not in coordinator_says.partitions:
        action = AbortAction.MARKER
    elif coordinator_says.state == ONGOING:
        action = AbortAction.FENCE
    else:
        action = AbortAction.WAIT
    return AbortPlan(open=open_transaction, coordinator_says=coordinator_says, action=action)


@checked_fields()
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichTransaction:
    """How a user names a transaction: by its first offset, or by its producer. One of the two must be given.

    The epoch of the producer, and that of the coordinator, have to match if they are given.
    """

    start_offset: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    coordinator_epoch: int | None = None

    def __str__(self) -> str:
        words = (
            (self.start_offset, "begins at offset"),
            (self.producer_id, "is of producer"),
            (self.producer_epoch, "has producer epoch"),
            (self.coordinator_epoch, "has coordinator epoch"),
        )
        return " and ".join(f"{text} {value}" for value, text in words if value is not None)

    def matches(self, open_transaction: OpenTransaction) -> bool:
        """Return whether a transaction has everything by which this one is named."""
        producer = open_transaction.producer
        coordinator_epoch = -1 if producer.coordinator_epoch is None else producer.coordinator_epoch
        pairs = (
            (self.start_offset, open_transaction.start_offset),
            (self.producer_id, producer.producer_id),
            (self.producer_epoch, producer.producer_epoch),
            (self.coordinator_epoch, coordinator_epoch),
        )
        return all(wanted is None or wanted == actual for wanted, actual in pairs)


async def find_open_transaction(
    cluster: Cluster, topic_partition: TopicPartition, which: WhichTransaction
) -> OpenTransaction:
    """Return the open transaction that a user names. Raises ``BrokerRefused``: INVALID_TXN_STATE if there is none."""
    opened, failed = await open_transactions(cluster, [topic_partition])
    if topic_partition in failed:
        raise failed[topic_partition].as_error(str(topic_partition))
    for each in opened:
        if which.matches(each):
            return each
    message = f"no open transaction {which}"
    raise BrokerRefused(str(topic_partition), Refusal(error=ErrorCode.INVALID_TXN_STATE, message=message))


async def prepare_abort(cluster: Cluster, open_transaction: OpenTransaction) -> AbortPlan:
    """Return the plan by the state of the transaction's coordinator. Changes nothing. Raises ``BrokerRefused``."""
    producer_id = open_transaction.producer.producer_id
    return plan_abort(open_transaction, (await coordinators_know(cluster, [producer_id])).get(producer_id))


async def carry_out_abort(cluster: Cluster, plan: AbortPlan) -> Fencing | None:
    """Carry out a plan if it is still the right one; return the fencing if there was one.

    Raises ``BrokerRefused``: with CONCURRENT_TRANSACTIONS, having changed nothing, if another plan is right now.
    """
    now = await prepare_abort(cluster, plan.open)
    if now.action is not plan.action:
        raise _went_on(plan, "its coordinator went on with it")
    match plan.action:
        case AbortAction.WAIT:
            raise _went_on(plan, "its coordinator is ending it")
        case AbortAction.MARKER:
            await _write_marker(cluster, plan)
            return None
        case AbortAction.FENCE:
            assert plan.coordinator_says is not None
            assert now.coordinator_says is not None
            if _identity(now.coordinator_says) != _identity(plan.coordinator_says):
                raise _went_on(plan, "its producer ended it, and is in another transaction")
            return await force_terminate_transaction(cluster, plan.coordinator_says.transactional_id)


async def _write_marker(cluster: Cluster, plan: AbortPlan) -> None:
    producer = plan.open.producer
    marker = AbortMarker(
        topic_partition=plan.open.topic_partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
    )
    refused = await write_abort_marker(cluster, marker)
    if refused is not None:
        raise _refused(plan, refused)


def _identity(says: TransactionDescription) -> tuple[str, int, int, int | None]:
    """Return the fields that differ from those of the next transaction of the same transactional id."""
    return says.transactional_id, says.producer_id, says.producer_epoch, says.start_ms


def _went_on(plan: AbortPlan, message: str) -> BrokerRefused:
    return _refused(plan, Refusal(error=ErrorCode.CONCURRENT_TRANSACTIONS, message=message))


def _refused(plan: AbortPlan, refusal: Refusal) -> BrokerRefused:
    return BrokerRefused(f"{plan.open.topic_partition} from offset {plan.open.start_offset}", refusal)
