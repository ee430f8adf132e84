"""How a transaction is aborted: through its coordinator if that has it, and never while it is being committed."""

from collections.abc import Mapping

import pytest

from oncelog.clients.admin.abort_verification import is_same_transaction, verify_abort
from oncelog.clients.admin.transaction_abort import (
    AbortAction,
    WhichTransaction,
    carry_out_abort,
    find_open_transaction,
    plan_abort,
    prepare_abort,
)
from oncelog.clients.admin.transactions import TransactionDescription
from oncelog.clients.admin.txn_markers import AbortMarker, write_abort_marker
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.coordinator_scripts import ORDERS, Scene, opened, producer, transaction
from tests.unit.clients.scripted_cluster import cluster_of

BILLS = TopicPartition("bills", 0)
OFFSETS = TopicPartition("__consumer_offsets", 1)


def written(error: ErrorCode = ErrorCode.NONE) -> WriteTxnMarkersResponse:
    partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=error)
    topic = WritableTxnMarkerTopicResult(name="orders", partitions=[partition])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])


@pytest.mark.parametrize(
    ("says", "action"),
    [
        (None, AbortAction.MARKER),
        (transaction(ORDERS), AbortAction.FENCE),
        (transaction(BILLS, ORDERS), AbortAction.FENCE),
        (transaction(BILLS), AbortAction.MARKER),
        (transaction(ORDERS, state="PrepareCommit"), AbortAction.WAIT),
        (transaction(ORDERS, state="PrepareAbort"), AbortAction.WAIT),
        (transaction(BILLS, state="PrepareCommit"), AbortAction.MARKER),
        (transaction(state="CompleteCommit"), AbortAction.MARKER),
        (transaction(state="CompleteAbort"), AbortAction.MARKER),
        (transaction(state="Empty", start_ms=None), AbortAction.MARKER),
    ],
)
def test_abort_plan_follows_the_coordinators_description(
    says: TransactionDescription | None, action: AbortAction
) -> None:
    assert plan_abort(opened(), says).action is action


def test_fencing_aborts_on_all_partitions_and_a_marker_on_one() -> None:
    assert plan_abort(opened(), transaction(BILLS, ORDERS)).partitions == (BILLS, ORDERS)
    assert plan_abort(opened(), transaction(BILLS)).partitions == (ORDERS,)


@pytest.mark.parametrize(
    ("which", "matches"),
    [
        ({"start_offset": 10}, True),
        ({"start_offset": 11}, False),
        ({"producer_id": 7}, True),
        ({"producer_id": 8}, False),
        ({"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": 2}, True),
        ({"producer_id": 7, "producer_epoch": 4}, False),
        ({"producer_id": 7, "coordinator_epoch": -1}, False),
        ({"start_offset": 10, "producer_id": 8}, False),
    ],
)
def test_transaction_matches_all_fields_that_are_given(which: Mapping[str, int], matches: bool) -> None:
    assert WhichTransaction(**which).matches(opened()) is matches


def test_producer_without_markers_has_coordinator_epoch_minus_1_as_in_kafkas_tool() -> None:
    assert WhichTransaction(producer_id=7, coordinator_epoch=-1).matches(opened(coordinator_epoch=None))


@in_virtual_time
async def test_transaction_that_is_not_open_is_not_aborted() -> None:
    scene = Scene(open_transactions=[producer(), producer(9, start=None)], says=None)
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        with pytest.raises(BrokerRefused, match="no open transaction begins at offset 11"):
            await find_open_transaction(cluster, ORDERS, WhichTransaction(start_offset=11))
        with pytest.raises(BrokerRefused, match="INVALID_TXN_STATE"):
            await find_open_transaction(cluster, ORDERS, WhichTransaction(producer_id=9))


@in_virtual_time
async def test_hanging_transaction_gets_a_marker_and_no_producer_is_fenced() -> None:
    scene = Scene(open_transactions=[producer()], says=transaction(state="CompleteCommit"))
    scene.broker.script |= {WriteTxnMarkersRequest: written(), InitProducerIdRequest: InitProducerIdResponse()}
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        assert await carry_out_abort(cluster, await prepare_abort(cluster, opened())) is None
        (request,) = scene.broker.seen(WriteTxnMarkersRequest)
        assert isinstance(request, WriteTxnMarkersRequest)
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 2)
        assert marker.transaction_result is False
        assert marker.transaction_version == 0, "the strict rule of version 2 would refuse the producer's own epoch"
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [0])]
        assert not scene.broker.seen(InitProducerIdRequest)


@in_virtual_time
async def test_transaction_of_a_coordinator_is_fenced_and_gets_no_marker() -> None:
    scene = Scene(open_transactions=[producer()], says=transaction(ORDERS, BILLS))
    fenced = InitProducerIdResponse(producer_id=7, producer_epoch=5)
    scene.broker.script |= {WriteTxnMarkersRequest: written(), InitProducerIdRequest: fenced}
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        fencing = await carry_out_abort(cluster, await prepare_abort(cluster, opened()))
        assert fencing is not None
        assert (fencing.before.producer_epoch, fencing.producer_epoch) == (3, 5)
        assert len(scene.broker.seen(InitProducerIdRequest)) == 1
        assert not scene.broker.seen(WriteTxnMarkersRequest)


@pytest.mark.parametrize(
    ("planned", "now"),
    [
        pytest.param(transaction(state="CompleteCommit"), transaction(ORDERS), id="has the partition by now"),
        pytest.param(transaction(ORDERS), transaction(ORDERS, state="PrepareCommit"), id="is being committed"),
        pytest.param(transaction(ORDERS), transaction(ORDERS, start_ms=1), id="is the next transaction"),
        pytest.param(transaction(ORDERS), transaction(ORDERS, epoch=4), id="is the next epoch's"),
        pytest.param(transaction(ORDERS), transaction(state="CompleteCommit"), id="was committed"),
        pytest.param(
            transaction(ORDERS, state="PrepareCommit"), transaction(ORDERS, state="PrepareCommit"), id="is left alone"
        ),
    ],
)
def test_abort_is_refused_once_its_coordinator_has_moved_on(
    planned: TransactionDescription, now: TransactionDescription
) -> None:
    @in_virtual_time
    async def play() -> None:
        scene = Scene(open_transactions=[producer()], says=planned)
        scene.broker.script |= {WriteTxnMarkersRequest: written(), InitProducerIdRequest: InitProducerIdResponse()}
        async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
            plan = await prepare_abort(cluster, opened())
            scene.says = now
            with pytest.raises(BrokerRefused, match="CONCURRENT_TRANSACTIONS"):
                await carry_out_abort(cluster, plan)
            assert not scene.broker.seen(WriteTxnMarkersRequest)
            assert not scene.broker.seen(InitProducerIdRequest)

    play()


@in_virtual_time
async def test_marker_for_a_producer_without_markers_has_coordinator_epoch_0() -> None:
    scene = Scene(open_transactions=[], says=None)
    scene.broker.script[WriteTxnMarkersRequest] = written(ErrorCode.INVALID_PRODUCER_EPOCH)
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        marker = AbortMarker(topic_partition=ORDERS, producer_id=7, producer_epoch=3, coordinator_epoch=None)
        refused = await write_abort_marker(cluster, marker)
        assert refused == Refusal(error=ErrorCode.INVALID_PRODUCER_EPOCH)
        (request,) = scene.broker.seen(WriteTxnMarkersRequest)
        assert isinstance(request, WriteTxnMarkersRequest)
        assert request.markers[0].coordinator_epoch == 0


# Whether all agree


class Aftermath(Scene):
    """A scene that also answers about records, offsets and groups; after an abort all is well in it."""

    def __init__(self) -> None:
        super().__init__(open_transactions=[producer(start=None)], says=transaction(state="Empty", start_ms=None))
        self.aborted = [AbortedTransaction(producer_id=7, first_offset=10)]
        self.last_stable_offset = 12
        self.unstable = ErrorCode.NONE
        self.broker.script |= {
            FetchRequest: lambda _: self._fetched(),
            ListOffsetsRequest: lambda _: self._offsets(),
            ListGroupsRequest: ListGroupsResponse(groups=[ListedGroup(group_id=group) for group in ("a", "b")]),
            OffsetFetchRequest: self._committed,
        }

    def _fetched(self) -> FetchResponse:
        partition = PartitionData(partition_index=0, aborted_transactions=self.aborted)
        return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])

    def _offsets(self) -> ListOffsetsResponse:
        partition = ListOffsetsPartitionResponse(partition_index=0, offset=self.last_stable_offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[partition])])

    def _committed(self, request: Message) -> OffsetFetchResponse:
        assert isinstance(request, OffsetFetchRequest)
        assert request.require_stable
        partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, error_code=self.unstable)
        topic = OffsetFetchResponseTopics(name="orders", partitions=[partition])
        groups = [OffsetFetchResponseGroup(group_id=group.group_id, topics=[topic]) for group in request.groups]
        return OffsetFetchResponse(groups=groups)


FENCED = plan_abort(opened(), transaction(ORDERS, OFFSETS))
MARKED = plan_abort(opened(), None)


async def subjects_that_disagree(scene: Aftermath, plan: object = FENCED) -> list[str]:
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        assert plan is FENCED or plan is MARKED
        checks = await verify_abort(cluster, FENCED if plan is FENCED else MARKED)
        return [check.subject for check in checks if not check.agrees]


@in_virtual_time
async def test_checks_after_an_abort_all_agree() -> None:
    assert await subjects_that_disagree(Aftermath()) == []
    assert await subjects_that_disagree(Aftermath(), MARKED) == []


@in_virtual_time
async def test_check_of_a_still_open_partition_disagrees() -> None:
    scene = Aftermath()
    scene.open[ORDERS] = [producer()]
    scene.last_stable_offset = 10
    assert await subjects_that_disagree(scene, MARKED) == ["partitions", "last stable offset"]


@in_virtual_time
async def test_check_of_committed_records_disagrees() -> None:
    scene = Aftermath()
    scene.aborted = [AbortedTransaction(producer_id=7, first_offset=3)]
    assert await subjects_that_disagree(scene) == ["records"]


@in_virtual_time
async def test_check_of_a_coordinator_with_the_partition_again_disagrees() -> None:
    scene = Aftermath()
    scene.says = transaction(ORDERS)
    assert await subjects_that_disagree(scene, MARKED) == ["coordinator"]


@in_virtual_time
async def test_check_of_pending_offsets_disagrees() -> None:
    """In the group's memory, although the log of its coordinator has nothing open."""
    scene = Aftermath()
    scene.unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await subjects_that_disagree(scene) == ["group offsets"]


@in_virtual_time
async def test_check_of_hanging_offsets_disagrees() -> None:
    scene = Aftermath()
    scene.open[OFFSETS] = [producer(start=4)]
    assert await subjects_that_disagree(scene, MARKED) == ["group offsets"]


@in_virtual_time
async def test_check_ignores_offsets_of_another_ongoing_transaction() -> None:
    """Its producer, of version 1, is in another transaction with the same epoch."""
    scene = Aftermath()
    scene.open[OFFSETS] = [producer(start=4)]
    scene.says = transaction(OFFSETS)
    assert await subjects_that_disagree(scene, MARKED) == []


@in_virtual_time
async def test_check_allows_an_earlier_transaction_of_another_producer() -> None:
    scene = Aftermath()
    scene.open[ORDERS] = [producer(8, start=4)]
    scene.last_stable_offset = 4
    assert await subjects_that_disagree(scene) == []


def test_next_transaction_of_the_producer_is_not_the_aborted_one() -> None:
    assert is_same_transaction(MARKED, opened())
    assert not is_same_transaction(MARKED, opened(start=20))
    assert not is_same_transaction(MARKED, opened(producer_id=8))
    assert is_same_transaction(MARKED, opened(OFFSETS, start=20)), "the same epoch, so nothing of it is newer"
    assert is_same_transaction(FENCED, opened(start=20))
    assert not is_same_transaction(FENCED, opened(start=20, epoch=5)), "of whoever uses the id now"
