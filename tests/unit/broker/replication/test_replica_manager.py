"""The controller's orders: who leads, who resigns, what is deleted, what survives a restart."""

import pytest

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.requested_states import EPOCH_DURING_DELETE
from oncelog.broker.storage.checkpoints import REPLICATION_CHECKPOINT
from oncelog.broker.storage.log_config import LogConfig
from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.log_ends import UNKNOWN_END
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from oncelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import LOG_DIR, ME, OTHER, ReplicaSide, topic_id
from tests.unit.broker.virtual_time import in_virtual_time

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


T0 = TopicPartition("t", 0)
NEXT_ID = bytes(15) + b"x"


def set_aside(broker: ReplicaSide) -> list[str]:
    """The partitions whose directories were set aside."""
    names = broker.disk.list_dir(LOG_DIR)
    return sorted(name.partition(".")[0] for name in names if name.endswith("-stray"))


def errors(response: LeaderAndIsrResponse) -> list[int]:
    assert [error for topic in response.topics for error in topic.partition_errors] == response.partition_errors
    return [error.error_code for error in response.partition_errors]


def stop(
    broker: ReplicaSide,
    topic: str = "t",
    *,
    epoch: int = EPOCH_DURING_DELETE,
    delete: bool = True,
    controller: int = 1,
    id_of_topic: bytes = ZERO_UUID,
) -> list[int] | ErrorCode:
    response = broker.replica_control.stop_replica(
        StopReplicaRequest(
            controller_epoch=controller,
            topic_states=[
                StopReplicaTopicState(
                    topic_name=topic,
                    topic_id=id_of_topic,
                    partition_states=[
                        StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=delete)
                    ],
                )
            ],
        )
    )
    if response.error_code:
        return ErrorCode(response.error_code)
    return [error.error_code for error in response.partition_errors]


def test_partitions_are_created_and_led() -> None:
    broker = ReplicaSide()
    assert errors(broker.lead("t", 3)) == [0, 0, 0]
    assert all(isinstance(broker.replica_manager.led_partition(("t", index)), LeadingPartition) for index in range(3))
    assert broker.log_manager.get(TopicPartition("t", 2)) is broker.partition("t", 2).log
    assert broker.partition().topic_id == topic_id("t")


def test_missing_partition_is_unknown_or_led_elsewhere() -> None:
    broker = ReplicaSide()
    assert broker.replica_manager.led_partition(("t", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.lead(leader=OTHER, replicas=(OTHER,))
    assert broker.replica_manager.partition(("t", 0)) is None
    assert broker.replica_manager.led_partition(("t", 0)) is NOT_LEADER


def test_follower_keeps_its_log_and_does_not_lead() -> None:
    broker = ReplicaSide()
    broker.lead(leader=OTHER, replicas=(OTHER, ME))
    assert broker.replica_manager.led_partition(("t", 0)) is NOT_LEADER
    assert broker.replica_manager.find(("t", 0)) is broker.partition()
    leader = broker.replica_manager.current_leader(("t", 0))
    assert leader is not None
    assert leader.broker_id == OTHER


def test_request_of_an_older_controller_is_refused() -> None:
    """B62: a zombie controller changes nothing."""
    broker = ReplicaSide()
    broker.lead("t", controller_epoch=5)
    assert broker.lead("u", controller_epoch=4, reported=False).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.replica_manager.partition(("u", 0)) is None
    assert stop(broker, controller=4) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.partition().leading is not None


def log_end(response: LeaderAndIsrResponse) -> tuple[int, int]:
    """The leader epoch and the offset at which the only log ends, as the controller reads them."""
    sent = decode(LeaderAndIsrResponse, 7, encode(response, 7))
    ((error,),) = (topic.partition_errors for topic in sent.topics)
    return error.last_leader_epoch, error.log_end_offset


def test_log_end_is_reported_while_there_is_no_leader() -> None:
    """B110: also to a new controller, which sends the same state again."""
    broker = ReplicaSide()
    assert log_end(broker.lead(epoch=3, replicas=(ME, OTHER))) == UNKNOWN_END
    broker.append(batch(b"a", b"b"))
    assert log_end(broker.lead(leader=NO_LEADER, epoch=4, replicas=(ME, OTHER))) == (3, 2)
    again = broker.lead(leader=NO_LEADER, epoch=4, replicas=(ME, OTHER), controller_epoch=2)
    assert (errors(again), log_end(again)) == ([ErrorCode.STALE_CONTROLLER_EPOCH], (3, 2))
    led = broker.lead(leader=OTHER, epoch=5, replicas=(ME, OTHER), controller_epoch=2)
    assert log_end(led) == UNKNOWN_END


def test_log_end_is_not_reported_for_a_state_that_a_newer_one_replaced() -> None:
    """B110: the log may have changed since."""
    broker = ReplicaSide()
    broker.lead(leader=OTHER, epoch=5, replicas=(ME, OTHER))
    assert log_end(broker.lead(leader=NO_LEADER, epoch=4, replicas=(ME, OTHER))) == UNKNOWN_END
    broker.lead(leader=NO_LEADER, epoch=6, replicas=(ME, OTHER))
    assert log_end(broker.lead(leader=NO_LEADER, epoch=4, replicas=(ME, OTHER))) == UNKNOWN_END


def test_log_end_of_a_failed_log_is_not_reported() -> None:
    broker = ReplicaSide()
    broker.lead(epoch=3, replicas=(ME, OTHER))
    log = broker.partition().log
    assert log is not None
    log.note_error(OSError(5, "broken"))
    assert log_end(broker.lead(leader=NO_LEADER, epoch=4, replicas=(ME, OTHER))) == UNKNOWN_END


@pytest.mark.parametrize("epoch", [3, 4])
def test_older_or_equal_leader_epoch_is_refused(epoch: int) -> None:
    broker = ReplicaSide()
    broker.lead(epoch=4)
    assert errors(broker.lead(epoch=epoch, leader=OTHER, replicas=(ME, OTHER))) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert broker.partition().leading is not None


def test_another_topic_of_the_same_name_is_refused() -> None:
    broker = ReplicaSide()
    broker.lead()
    assert errors(broker.lead(epoch=1, id_of_topic=bytes(15) + b"x")) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    again = broker.restarted()
    assert errors(again.lead(epoch=1, id_of_topic=bytes(15) + b"x")) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert errors(again.lead(epoch=1)) == [0]


@pytest.mark.parametrize("restarts", [False, True])
def test_log_of_an_earlier_topic_is_set_aside_for_its_successor(restarts: bool) -> None:
    """Requests that are numbered are in order: the log's topic is the one that is gone."""
    broker = ReplicaSide()
    broker.lead(epoch=7)
    broker.append(batch(b"old"))
    if restarts:
        broker = broker.restarted()
    assert errors(broker.lead(epoch=0, id_of_topic=NEXT_ID, sequence=9)) == [0]
    assert broker.partition().topic_id == NEXT_ID
    log = broker.log_manager.get(T0)
    assert log is not None
    assert (log.log_end_offset, log.topic_id) == (0, NEXT_ID)
    assert set_aside(broker) == ["t-0"]


def test_request_that_a_newer_one_has_overtaken_is_refused() -> None:
    """B65: a LeaderAndIsr that is late does not bring the former topic back."""
    broker = ReplicaSide()
    broker.lead(epoch=0, id_of_topic=NEXT_ID, sequence=9)
    late = broker.lead(epoch=7, sequence=8, reported=False)
    assert late.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.partition().topic_id == NEXT_ID
    assert set_aside(broker) == []


def test_metadata_of_a_newer_controller_fences_requests_of_an_older_one() -> None:
    """B65: between the first UpdateMetadata of a controller and its first LeaderAndIsr."""
    broker = ReplicaSide()
    broker.tell("t", topic_id("t"), [], controller_epoch=5)
    assert broker.lead("t", controller_epoch=4, reported=False).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert stop(broker, controller=4) is ErrorCode.STALE_CONTROLLER_EPOCH


def test_stop_replica_of_another_topic_id_leaves_the_log_alone() -> None:
    """B63: one that was sent before the topic was created again."""
    broker = ReplicaSide()
    broker.lead(id_of_topic=NEXT_ID)
    assert stop(broker, id_of_topic=topic_id("t")) == [0]
    assert broker.partition().leading is not None
    assert broker.log_manager.get(T0) is not None
    assert stop(broker, id_of_topic=NEXT_ID) == [0]
    assert broker.log_manager.get(T0) is None


@pytest.mark.parametrize("heard_of", [False, True])
def test_full_update_sets_unassigned_replicas_aside(heard_of: bool) -> None:
    broker = ReplicaSide()
    broker.lead("moved", leader=OTHER, replicas=(OTHER, ME))
    broker.lead("gone")
    broker.lead("kept")
    if not heard_of:  # In this incarnation no controller has spoken of them.
        broker = broker.restarted()
    states = [LeaderAndIsrPartitionState(leader=ME, replicas=[ME])]
    broker.tell("kept", topic_id("kept"), states)
    assert len(broker.log_manager) == 3  # Others may be named by the next update.
    broker.tell("kept", topic_id("kept"), states, full=True)
    assert [log.topic_partition.topic for log in broker.log_manager] == ["kept"]
    assert set_aside(broker) == ["gone-0", "moved-0"]
    assert [partition.topic_partition.topic for partition in broker.replica_manager.partitions()] == ["kept"] * heard_of
    assert not broker.storage_failures


def test_coordinators_resign_from_a_partition_that_is_set_aside() -> None:
    broker = ReplicaSide()
    broker.lead("__consumer_offsets")
    broker.tell("t", topic_id("t"), [], full=True)
    assert broker.resigned == [TopicPartition("__consumer_offsets", 0)]


def test_partition_without_a_replica_here_is_refused() -> None:
    broker = ReplicaSide()
    response = broker.lead(leader=OTHER, replicas=(OTHER,))
    assert errors(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_oldest_form_of_leader_and_isr_is_understood() -> None:
    broker = ReplicaSide()
    state = LeaderAndIsrPartitionState(topic_name="t", leader=ME, replicas=[ME], isr=[ME])
    response = broker.replica_control.apply_leader_and_isr(LeaderAndIsrRequest(ungrouped_partition_states=[state]))
    assert [(error.topic_name, error.error_code) for error in response.partition_errors] == [("t", 0)]
    assert broker.partition().leading is not None


def test_coordinators_are_notified_of_their_partitions_only() -> None:
    broker = ReplicaSide()
    broker.lead("t")
    broker.lead("__transaction_state", 2)
    broker.lead("__consumer_offsets", 1)
    assert [str(partition) for partition in broker.elected] == [
        "__transaction_state-0",
        "__transaction_state-1",
        "__consumer_offsets-0",
    ]
    broker.lead("__transaction_state", 1, epoch=1)
    broker.lead("__transaction_state", 1, epoch=2, leader=OTHER, replicas=(ME, OTHER))
    assert [str(partition) for partition in broker.resigned] == ["__transaction_state-0"]
    stop(broker, "__consumer_offsets")
    assert [str(partition) for partition in broker.resigned[1:]] == ["__consumer_offsets-0"]


def test_reelection_gives_coordinators_a_log_with_the_new_epoch() -> None:
    broker = ReplicaSide()
    broker.lead("__transaction_state")
    first = broker.elected[TopicPartition("__transaction_state", 0)]
    broker.lead("__transaction_state", epoch=1, leader=OTHER, replicas=(ME, OTHER))
    broker.lead("__transaction_state", epoch=2, replicas=(ME, OTHER), isr=(ME,))
    second = broker.elected[TopicPartition("__transaction_state", 0)]
    assert (first.leader_epoch, second.leader_epoch) == (0, 2)
    assert first.append(batch()) is NOT_LEADER
    assert second.append(batch()) == 1


def test_deleted_partition_is_gone_and_its_name_is_free() -> None:
    broker = ReplicaSide()
    broker.lead()
    broker.append(batch())
    calls: list[ErrorCode] = []
    broker.leading().when_replicated(99, calls.append)
    assert stop(broker) == [0]
    assert calls == [NOT_LEADER]
    assert broker.replica_manager.partition(("t", 0)) is None
    assert broker.log_manager.get(TopicPartition("t", 0)) is None
    assert errors(broker.lead(id_of_topic=bytes(15) + b"x")) == [0]
    assert broker.partition().log is not None
    assert broker.append(batch()).base_offset == 0


def test_stopped_partition_keeps_its_data() -> None:
    broker = ReplicaSide()
    broker.lead()
    broker.append(batch())
    assert stop(broker, epoch=0, delete=False) == [0]
    assert broker.replica_manager.led_partition(("t", 0)) is NOT_LEADER
    broker.lead(epoch=1)
    assert broker.append(batch()).base_offset == 1


def test_stop_replica_of_an_older_epoch_is_fenced() -> None:
    broker = ReplicaSide()
    broker.lead(epoch=4)
    assert stop(broker, epoch=3) == [ErrorCode.FENCED_LEADER_EPOCH]
    assert broker.partition().leading is not None
    assert stop(broker, epoch=-1) == [0]


def test_older_forms_of_stop_replica_are_understood() -> None:
    broker = ReplicaSide()
    broker.lead("t")
    broker.lead("u", 2)
    broker.replica_control.stop_replica(
        StopReplicaRequest(
            controller_epoch=1,
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0(topic_name="t", partition_index=0)],
            topics=[StopReplicaTopicV1(name="u", partition_indexes=[1])],
        )
    )
    assert [str(partition.topic_partition) for partition in broker.replica_manager.partitions()] == ["u-0"]


def test_log_that_cannot_be_made_is_a_storage_error() -> None:
    """B84: the controller hears of it, so that another broker leads."""
    broker = ReplicaSide()
    broker.disk.fail("open", ".log")
    assert errors(broker.lead()) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert broker.storage_failures == [TopicPartition("t", 0)]


def test_failed_log_is_out_of_service_and_reported_once() -> None:
    """B41, B84: nobody is acknowledged any more, the coordinator resigns, and the failure is reported."""
    broker = ReplicaSide()
    broker.lead("__transaction_state")
    epoch_log = broker.elected[TopicPartition("__transaction_state", 0)]
    calls: list[ErrorCode] = []
    epoch_log.when_replicated(99, calls.append)
    broker.disk.fail("append", ".log")
    assert epoch_log.append(batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert epoch_log.append(batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert calls == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert broker.resigned == broker.storage_failures == [TopicPartition("__transaction_state", 0)]
    assert broker.replica_manager.led_partition(("__transaction_state", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert errors(broker.lead("__transaction_state", epoch=1)) == [ErrorCode.KAFKA_STORAGE_ERROR]


@in_virtual_time
async def test_high_watermarks_survive_a_restart() -> None:
    broker = ReplicaSide()
    broker.lead("t", replicas=(ME, OTHER))
    broker.append(batch(b"a"))
    broker.append(batch(b"b"))
    broker.follower_fetched(1)
    await broker.replica_manager.stop()
    again = broker.restarted()
    again.lead("t", epoch=1, replicas=(ME, OTHER))
    log = again.partition().log
    assert log is not None
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    assert not again.partition().end_is_settled


@in_virtual_time
async def test_deletion_of_many_partitions_writes_the_checkpoint_once() -> None:
    broker = ReplicaSide()
    broker.lead("t", 20)
    broker.lead("other")
    await broker.replica_manager.checkpoint_high_watermarks()
    before = broker.disk.calls["rename"]
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True)
        for index in range(20)
    ]
    topic = StopReplicaTopicState(topic_name="t", partition_states=states)
    response = broker.replica_control.stop_replica(StopReplicaRequest(controller_epoch=1, topic_states=[topic]))
    assert {(each.partition_index, each.error_code) for each in response.partition_errors} == {
        (index, ErrorCode.NONE) for index in range(20)
    }
    assert broker.disk.calls["rename"] == before + 20 + 1, "each directory, and the file"
    assert broker.disk.read(f"{LOG_DIR}/{REPLICATION_CHECKPOINT}") == b"0\n1\nother 0 0\n"


@in_virtual_time
async def test_checkpoint_keeps_partitions_without_a_leader_and_isr() -> None:
    broker = ReplicaSide()
    broker.lead("t", replicas=(ME, OTHER))
    broker.append(batch(b"a"))
    broker.follower_fetched(1)
    await broker.replica_manager.stop()
    once = broker.restarted()
    await once.replica_manager.checkpoint_high_watermarks()
    twice = once.restarted()
    twice.lead("t", epoch=1, replicas=(ME, OTHER))
    log = twice.partition().log
    assert log is not None
    assert log.high_watermark == 1


def test_sole_replica_is_settled_at_once_after_a_restart() -> None:
    broker = ReplicaSide()
    broker.lead(config=LogConfig())
    broker.append(batch(b"a", b"b"))
    again = broker.restarted()
    again.lead(epoch=1)
    log = again.partition().log
    assert log is not None
    assert log.high_watermark == log.log_end_offset == 2
    assert again.partition().end_is_settled


@in_virtual_time
async def test_full_disk_holds_up_no_stop() -> None:
    broker = ReplicaSide()
    broker.lead()
    broker.append(batch())
    broker.disk.fill()
    await broker.replica_manager.stop()
