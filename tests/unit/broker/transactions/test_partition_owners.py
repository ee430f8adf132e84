"""Which connection acts for a version-1 producer at the leader of a partition."""

from oncelog.broker.dispatch.request import ConnectionInfo
from oncelog.broker.transactions.partition_owners import PartitionOwner, PartitionOwners
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import LISTENER, ME, OTHER, ReplicaSide

FIRST, SECOND = (ConnectionInfo(client_host="127.0.0.1", listener_name=LISTENER, id=id) for id in (1, 2))


def owner_of(
    owners: PartitionOwners, broker: ReplicaSide, producer_id: int, connection: ConnectionInfo
) -> PartitionOwner:
    """The owner of a producer in epoch 1, as a request over the connection finds it."""
    leading = broker.leading()
    entry = leading.log.producer_state.producers.get(producer_id)
    return owners.owner(leading, entry, ProducerIdAndEpoch(producer_id, 1), connection)


def written(broker: ReplicaSide, producer_id: int, epoch: int) -> None:
    broker.append(batch(producer_id=producer_id, epoch=epoch, sequence=0, transactional=True))


def test_first_request_of_a_new_epoch_makes_its_connection_the_owner() -> None:
    broker, owners = ReplicaSide(), PartitionOwners()
    broker.lead()
    written(broker, 7, epoch=0)
    assert owner_of(owners, broker, 7, FIRST).connection_id == FIRST.id
    written(broker, 7, epoch=1)
    assert owner_of(owners, broker, 7, SECOND).connection_id == FIRST.id


def test_request_of_an_unknown_producer_makes_no_connection_the_owner() -> None:
    """B111: its transaction may have ended in a log that was deleted."""
    broker, owners = ReplicaSide(), PartitionOwners()
    broker.lead()
    assert owner_of(owners, broker, 7, FIRST).connection_id != FIRST.id


def test_owner_is_unknown_when_the_leadership_is_another() -> None:
    """B111: meanwhile another leader may have had another owner."""
    broker, owners = ReplicaSide(), PartitionOwners()
    broker.lead()
    written(broker, 7, epoch=0)
    assert owner_of(owners, broker, 7, FIRST).connection_id == FIRST.id
    written(broker, 7, epoch=1)
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    broker.lead(epoch=2, replicas=(ME, OTHER))
    assert owner_of(owners, broker, 7, FIRST).connection_id not in (FIRST.id, SECOND.id)


def test_owners_are_bounded_by_the_producers_of_the_partition() -> None:
    broker, owners = ReplicaSide(), PartitionOwners(most_producers=2)
    broker.lead()
    for producer_id in (7, 8, 9):
        owner_of(owners, broker, producer_id, FIRST).grant(ProducerIdAndEpoch(producer_id, 1), FIRST.id)
        written(broker, producer_id, epoch=1)
    assert [owner_of(owners, broker, id, SECOND).connection_id for id in (8, 9)] == [FIRST.id] * 2
    assert owner_of(owners, broker, 7, SECOND).connection_id not in (FIRST.id, SECOND.id)
    assert [owner_of(owners, broker, id, SECOND).connection_id for id in (8, 9)] == [FIRST.id] * 2
