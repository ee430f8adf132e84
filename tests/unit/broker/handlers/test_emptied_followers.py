"""B122: fetches of a follower whose log is empty, so that no leader epoch says what it had."""

import pytest

from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.protocol.messages.fetch import EpochEndOffset, FetchRequest, PartitionData
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.test_follower_fetch import fetch, leader, read, replies
from tests.unit.broker.replica_side import ME, OTHER, ReplicaSide
from tests.unit.broker.virtual_time import in_virtual_time

NOT_KNOWN = -1


def emptied(offset: int, *, version: int = 17, leader_epoch: int = 3) -> FetchRequest:
    """The fetch of a follower whose log begins and ends at an offset."""
    request = fetch((0, offset), version=version, leader_epoch=leader_epoch)
    request.topics[0].partitions[0].log_start_offset = offset
    return request


def leader_of(count: int, *, isr: tuple[int, ...] = (ME,)) -> ReplicaSide:
    """A leader with so many records."""
    broker = leader(isr=isr, epoch=3)
    broker.append(batch(*[b"v"] * count))
    return broker


def end_of_follower(broker: ReplicaSide) -> int:
    return broker.leading().progress.followers[OTHER].end


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("offset", [2, 3, 9])
@in_virtual_time
async def test_emptied_follower_whose_leader_begins_earlier_is_sent_there(version: int, offset: int) -> None:
    broker = leader_of(3)
    reply = read(broker, emptied(offset, version=version), version)
    assert (reply.error_code, reply.diverging_epoch) == (0, EpochEndOffset(epoch=3, end_offset=0))
    assert not reply.records
    assert end_of_follower(broker) == NOT_KNOWN
    assert not broker.leading().progress.in_sync.proposed


@in_virtual_time
async def test_emptied_follower_that_starts_where_its_leader_starts_goes_on() -> None:
    broker = leader_of(3, isr=(ME, OTHER))
    assert read(broker, fetch((0, 3), leader_epoch=3)).high_watermark == 3
    broker.leading().delete_records(3)
    progress = broker.leading().progress
    progress.in_sync = progress.in_sync.commit({ME})
    assert read(broker, emptied(3)).diverging_epoch is None
    assert end_of_follower(broker) == 3


@in_virtual_time
async def test_follower_that_cannot_name_an_epoch_is_not_judged_by_it() -> None:
    """Before version 12 a follower requests the end of its epoch from the leader by another API."""
    broker = leader_of(3)
    reply = read(broker, emptied(3, version=11), 11)
    assert (reply.error_code, reply.diverging_epoch) == (0, None)
    assert end_of_follower(broker) == 3


@pytest.mark.parametrize(("isr", "eligible"), [({ME, OTHER}, set()), ({ME}, {OTHER})])
@in_virtual_time
async def test_emptied_follower_with_everything_acknowledged_keeps_its_end(isr: set[int], eligible: set[int]) -> None:
    """It may be elected before it would have copied the log again, and would give its offsets to other records."""
    broker = leader_of(3)
    progress = broker.leading().progress
    progress.in_sync = progress.in_sync.commit(isr, eligible)
    reply = read(broker, emptied(3))
    assert (reply.error_code, reply.diverging_epoch) == (0, None)
    assert end_of_follower(broker) == 3


@in_virtual_time
async def test_follower_that_is_to_begin_anew_does_not_join_by_an_earlier_fetch() -> None:
    broker = leader_of(3, isr=(ME, OTHER))
    assert read(broker, emptied(3)).diverging_epoch is None
    progress = broker.leading().progress
    progress.in_sync = progress.in_sync.commit({ME})
    assert progress.followers[OTHER].is_close
    assert _reply(broker, emptied(3)).diverging_epoch == EpochEndOffset(epoch=3, end_offset=0)
    progress.propose_expansion()
    assert progress.in_sync.proposed is None


@in_virtual_time
async def test_fetch_of_a_former_incarnation_makes_no_follower_begin_anew() -> None:
    broker = leader_of(3, isr=(ME, OTHER))
    current, former = emptied(3), emptied(3)
    for request, epoch in ((current, 8), (former, 7)):
        assert request.replica_state is not None
        request.replica_state.replica_epoch = epoch
    assert _reply(broker, current).diverging_epoch is None
    progress = broker.leading().progress
    progress.in_sync = progress.in_sync.commit({ME})
    assert _reply(broker, former).diverging_epoch is None
    assert end_of_follower(broker) == 3


def _reply(broker: ReplicaSide, request: FetchRequest) -> PartitionData:
    (reply,) = replies(broker.respond(handle_fetch, request, 17)).values()
    return reply
