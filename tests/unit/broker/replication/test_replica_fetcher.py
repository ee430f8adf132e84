"""What one fetcher does with a response, step by step; whole replications are in ``tests/simulation``."""

import asyncio

from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.replication.followed_partition import FollowedPartition
from oncelog.broker.replication.follower_session import FetcherSettings
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_fetcher import ReplicaFetcher, ReplicaFetchers
from oncelog.broker.replication.replication_quota import ReplicationQuota
from oncelog.clients.connection import Address, Connection
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.unit.broker.replication.test_follower_session import EPOCH, LEADER, ME, SESSION, TOPIC_ID, grow, partition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker

FETCHES_IN_VAIN = 10
"""In a row, before the fetcher waits between two of them."""
NOWHERE = Address("127.0.0.1", 1)


def grown(index: int) -> Partition:
    """With three records that the leader does not have."""
    made = partition(index)
    for _ in range(3):
        grow(FollowedPartition(made))
    return made


def end(partition: Partition) -> int:
    assert partition.log is not None
    return partition.log.log_end_offset


async def test_logs_are_truncated_in_turn_and_not_after_a_request_of_the_controller() -> None:
    """Each may take long, and whoever waits for something else is let through in between."""
    fetcher = ReplicaFetcher(
        LEADER,
        FetcherSettings(replica_id=ME),
        address_of=lambda _: None,
        broker_epoch=lambda: EPOCH,
        quota=ReplicationQuota(),
    )
    partitions = [grown(index) for index in range(3)]
    for each in partitions:
        fetcher.follow(each)
    fetcher._session.next_request(EPOCH)
    diverging = EpochEndOffset(epoch=3, end_offset=1)
    data = [PartitionData(partition_index=index, diverging_epoch=diverging) for index in range(3)]
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)]
    taking = fetcher._take(Connection(NOWHERE, None, 1.0), FetchResponse(session_id=SESSION, responses=topics))
    taking.send(None)
    assert [end(each) for each in partitions] == [1, 3, 3]
    fetcher.unfollow(partitions[1].topic_partition)
    taking.send(None)
    assert [end(each) for each in partitions] == [1, 3, 1]
    taking.close()


async def test_leaving_broker_follows_nothing_new() -> None:
    supervisor = Supervisor()
    fetchers = ReplicaFetchers(
        FetcherSettings(replica_id=ME),
        address_of=lambda _: None,
        broker_epoch=lambda: EPOCH,
        supervise=supervisor.supervise,
    )
    fetchers.follow(partition(0))
    fetchers.follow(partition(1))
    assert len(fetchers._fetchers[LEADER]) == 2
    fetchers.leave()
    fetchers.follow(partition(1, leader_epoch=4))
    fetchers.follow(partition(2))
    assert len(fetchers._fetchers[LEADER]) == 1
    await supervisor.stop()


@in_virtual_time
async def test_leader_that_returns_errors_at_once_gets_ten_fetches_per_second() -> None:
    leader = ScriptedBroker({FetchRequest: FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)})
    address = await leader.start()
    fetcher = ReplicaFetcher(
        LEADER,
        FetcherSettings(replica_id=ME),
        address_of=lambda _: address,
        broker_epoch=lambda: EPOCH,
        quota=ReplicationQuota(),
    )
    fetcher.follow(partition(0))
    task = asyncio.get_running_loop().create_task(fetcher.run())
    await asyncio.sleep(2)
    assert FETCHES_IN_VAIN < len(leader.seen(FetchRequest)) <= FETCHES_IN_VAIN + 21
    task.cancel()
    await asyncio.wait([task])
    leader.stop()
