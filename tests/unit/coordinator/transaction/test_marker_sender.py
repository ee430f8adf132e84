"""Markers reach every partition, whatever is in their way; nothing else is ever crossed off."""

import itertools
import logging
from collections.abc import Iterator

import pytest

from oncelog.coordinator.ports import TransactionMarker
from oncelog.coordinator.timers import Backoff
from oncelog.coordinator.transaction.marker_sender import (
    ATTEMPTS_FOR_INTERNAL_TOPICS,
    MARKER_OUTCOMES,
    MOST_PARTITIONS,
    PARTITIONS_PER_TURN,
    MarkerOutcome,
    MarkerSender,
    PendingMarkers,
    marker_outcome,
)
from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.compiler import decoder, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.world import HERE, World, world

INVOICES = TopicPartition("invoices", 0)
SHIPMENTS = TopicPartition("shipments", 0)
OFFSETS = TopicPartition("__consumer_offsets", 3)
ELSEWHERE, ANYWHERE = 2, 3


def prepared(
    *partitions: TopicPartition, producer_id: int = 4000, epoch: int = 0, commit: bool = True, version: int = 0
) -> TransactionMetadata:
    """Return the Prepare* of a transaction over these partitions."""
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        partitions=frozenset(partitions),
        start_ms=0,
        last_update_ms=0,
        client_transaction_version=version,
    )


class Sender:
    """A sender alone, and which of its transactions are done."""

    def __init__(self) -> None:
        self.world = World()
        self.cluster = self.world.cluster
        self.done: list[PendingMarkers] = []
        self.sender = MarkerSender(
            broker_id=HERE,
            metadata=self.cluster,
            channel=self.cluster,
            local=self.cluster,
            retries=Backoff(20, 1_000),
        )

    def send(
        self, *partitions: TopicPartition, transactional_id: str = "id", epoch: int = 0, log_partition: int = 0
    ) -> PendingMarkers:
        """Send a commit to these partitions."""
        markers = self.pending(*partitions, transactional_id=transactional_id, epoch=epoch, log_partition=log_partition)
        self.world.do(lambda: self.begin(markers))
        self.world.turn()
        return markers

    def begin(self, markers: PendingMarkers) -> None:
        """Send markers, and note when they are done."""
        self.sender.send(markers)
        markers.then(lambda: self.done.append(markers))

    def pending(
        self, *partitions: TopicPartition, transactional_id: str = "id", epoch: int = 0, log_partition: int = 0
    ) -> PendingMarkers:
        """A commit that is not sent yet."""
        return PendingMarkers(
            transactional_id,
            prepared(*partitions, epoch=epoch),
            log_partition=log_partition,
            coordinator_epoch=5,
        )

    def deliver(self, count: int | None = None) -> None:
        self.world.do(lambda: self.cluster.deliver(count))
        self.world.turn()

    def lose(self) -> None:
        self.world.do(self.cluster.lose)

    def sleep(self, seconds: float = 2) -> None:
        self.world.sleep(seconds)


@pytest.fixture
def sender() -> Iterator[Sender]:
    made = Sender()
    for topic in ("invoices", "shipments"):
        made.cluster.add_topic(topic, leader=ELSEWHERE)
    yield made
    made.world.do(made.sender.stop)
    made.world.stop()


# The ways to the leaders


def test_local_partitions_are_done_before_send_returns(sender: Sender) -> None:
    sender.cluster.partitions[INVOICES].leader = HERE
    markers = PendingMarkers("id", prepared(INVOICES, commit=False, version=2), log_partition=0, coordinator_epoch=5)
    sender.begin(markers)  # Not even a running loop is needed.
    assert sender.done == [markers]
    assert sender.cluster.partitions[INVOICES].markers == [TransactionMarker(4000, 0, False, 5, 2)]


def test_lost_request_is_one_line_of_the_log(sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    """Not one for each partition, as if its leader had said something."""
    caplog.set_level(logging.INFO, "oncelog.coordinator.transaction.marker_sender")
    sender.send(INVOICES, SHIPMENTS)
    sender.lose()
    assert caplog.messages == [f"Broker {ELSEWHERE} sent no response to the markers of 1 transactions: retrying"]
    sender.sleep()
    sender.deliver()
    assert len(sender.done) == 1


def test_request_to_a_broker_carries_all_markers_of_a_turn(sender: Sender) -> None:
    all_markers = [
        PendingMarkers(
            f"id-{number}",
            prepared(INVOICES, SHIPMENTS, producer_id=number),
            log_partition=0,
            coordinator_epoch=5,
        )
        for number in range(10)
    ]

    def send_all() -> None:
        for markers in all_markers:
            sender.begin(markers)

    sender.world.do(send_all)
    sender.world.turn()
    assert len(sender.cluster.on_the_way) == 1
    assert len(sender.cluster.on_the_way[0].request.markers) == 10
    sender.deliver()
    assert len(sender.done) == 10


def test_broker_gets_the_partitions_that_it_leads(sender: Sender) -> None:
    sender.cluster.partitions[SHIPMENTS].leader = ANYWHERE
    markers = sender.send(INVOICES, SHIPMENTS)
    assert [sent.broker_id for sent in sender.cluster.on_the_way] == [ELSEWHERE, ANYWHERE]
    sender.deliver(1)
    assert (sender.done, markers.waiting) == ([], {SHIPMENTS})
    sender.deliver()
    assert sender.done == [markers]


def test_transaction_without_partitions_is_done_at_once(sender: Sender) -> None:
    assert sender.done == [sender.send()]


def test_lost_connection_is_tried_again_at_the_leader_of_that_moment(sender: Sender) -> None:
    markers = sender.send(INVOICES)
    sender.lose()
    sender.cluster.partitions[INVOICES].leader = ANYWHERE
    sender.sleep()
    assert [sent.broker_id for sent in sender.cluster.on_the_way] == [ANYWHERE]
    sender.deliver()
    assert sender.done == [markers]


def test_delay_between_attempts_doubles_up_to_its_limit(sender: Sender) -> None:
    sender.send(INVOICES)
    delays = []
    for _ in range(8):
        sender.lose()
        before = sender.world.loop.time()
        while not sender.cluster.on_the_way:
            sender.sleep(0.001)
        delays.append(round(sender.world.loop.time() - before, 2))
    assert delays == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


def test_partition_without_a_leader_waits_for_one(sender: Sender) -> None:
    """B16: leader unknown, so wait."""
    sender.cluster.partitions[INVOICES].leader = None
    markers = sender.send(INVOICES)
    sender.sleep(30)
    assert (sender.done, sender.cluster.on_the_way) == ([], [])
    sender.cluster.partitions[INVOICES].leader = HERE
    sender.sleep()
    assert sender.done == [markers]


# What the responses mean


def test_error_code_outside_done_and_fenced_is_retried() -> None:
    """B16: every marker error code is mapped."""
    ends = {code for code in ErrorCode if marker_outcome(code) is MarkerOutcome.DONE}
    assert ends == {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
    assert [code for code in ErrorCode if marker_outcome(code) is MarkerOutcome.FENCED] == [
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    ]


@pytest.mark.parametrize("error", [code for code in ErrorCode if marker_outcome(code) is MarkerOutcome.RETRY])
def test_retriable_error_is_retried(sender: Sender, error: ErrorCode) -> None:
    """B16: retriable codes are retried, and so are those that nobody expects."""
    sender.cluster.partitions[INVOICES].errors = [error] * 3
    markers = sender.send(INVOICES, SHIPMENTS)
    for _ in range(3):
        sender.deliver()
        assert (sender.done, markers.waiting) == ([], {INVOICES})
        sender.sleep()
    sender.deliver()
    assert sender.done == [markers]
    assert len(sender.cluster.partitions[SHIPMENTS].markers) == 1


@pytest.mark.parametrize("error", [code for code, outcome in MARKER_OUTCOMES.items() if outcome is MarkerOutcome.DONE])
def test_final_error_completes_the_partition(sender: Sender, error: ErrorCode) -> None:
    """B16, B12: a partition that has moved on does not keep the transaction in Prepare* for ever."""
    sender.cluster.partitions[INVOICES].errors = [error]
    markers = sender.send(INVOICES)
    sender.deliver()
    assert sender.done == [markers]


def test_fenced_coordinator_sends_no_more_markers(sender: Sender) -> None:
    """B16: coordinator fenced, so stop: nothing is sent any more, and nothing is completed."""
    sender.cluster.partitions[INVOICES].markers = [TransactionMarker(4000, 0, True, 6, 0)]
    sender.send(INVOICES, SHIPMENTS)
    sender.deliver()
    sender.sleep(30)
    assert (sender.done, sender.cluster.on_the_way, len(sender.sender)) == ([], [], 0)


def test_partition_missing_in_response_is_retried(sender: Sender) -> None:
    markers = sender.send(INVOICES)
    (sent,) = sender.cluster.on_the_way
    sender.cluster.on_the_way.clear()
    sender.world.do(lambda: sent.on_response(WriteTxnMarkersResponse()))
    assert sender.done == []
    sender.sleep()
    sender.deliver()
    assert sender.done == [markers]


# Deleted topics


def test_deleted_topic_needs_no_marker(sender: Sender) -> None:
    """B15: a deleted topic never prevents the transaction from completing."""
    sender.cluster.delete_topic("invoices")
    assert sender.done == [sender.send(INVOICES)]


def test_topic_that_is_deleted_while_its_marker_is_on_the_way_needs_none(sender: Sender) -> None:
    """B15: found out from the error UNKNOWN_TOPIC_OR_PARTITION, or from no response at all."""
    markers = sender.send(INVOICES, SHIPMENTS)
    sender.cluster.delete_topic("invoices")
    sender.deliver()
    assert markers.waiting == {INVOICES}
    sender.sleep()
    assert sender.done == [markers]


def test_partition_that_never_existed_needs_no_marker(sender: Sender) -> None:
    """B15: a topic that was deleted and created anew with fewer partitions."""
    assert sender.done == [sender.send(TopicPartition("invoices", 1))]


@pytest.mark.parametrize("partition", [TopicPartition("unheard", 0), TopicPartition("invoices", 1), OFFSETS])
def test_partition_that_is_not_known_yet_waits_for_its_marker(sender: Sender, partition: TopicPartition) -> None:
    """B15: only what is known not to exist is crossed off."""
    sender.cluster.knows_all = False
    markers = sender.send(partition)
    sender.sleep(60)
    assert sender.done == []
    sender.cluster.add_topic(partition.topic, partition.partition + 1, leader=ELSEWHERE)
    sender.sleep()
    sender.deliver()
    assert sender.done == [markers]


def test_partition_that_turns_out_not_to_exist_needs_no_marker(sender: Sender) -> None:
    """B15: as soon as that is known."""
    sender.cluster.knows_all = False
    markers = sender.send(TopicPartition("unheard", 0))
    sender.sleep(60)
    sender.cluster.knows_all = True
    sender.sleep()
    assert sender.done == [markers]


def test_offsets_topic_that_is_being_created_gets_its_marker(sender: Sender) -> None:
    """B15: the offsets topic may be created just after a transaction added it."""
    markers = sender.send(OFFSETS)
    sender.sleep()
    assert sender.done == []
    sender.cluster.add_topic("__consumer_offsets", 50)
    sender.sleep()
    assert sender.done == [markers]


def test_offsets_topic_that_never_appears_is_given_up(sender: Sender) -> None:
    """B15: the producer died between adding it and committing an offset."""
    markers = sender.send(OFFSETS)
    sender.sleep(ATTEMPTS_FOR_INTERNAL_TOPICS)
    assert sender.done == [markers]


# Entries


def test_response_of_earlier_transaction_does_not_touch_the_present_one(sender: Sender) -> None:
    """B12: a pending-marker entry may be removed only by its own (producer id, epoch)."""
    sender.send(INVOICES, epoch=0)
    late = list(sender.cluster.on_the_way)
    sender.cluster.on_the_way.clear()
    sender.world.do(lambda: sender.sender.forget(0))
    present = sender.send(INVOICES, epoch=1)
    sender.world.do(lambda: late[0].on_response(sender.cluster.respond(late[0].request)))
    assert (sender.done, present.waiting) == ([], {INVOICES})
    sender.deliver()
    assert sender.done == [present]


@pytest.mark.parametrize("late", ["a lost connection", "a newer coordinator"])
def test_bad_news_of_an_earlier_transaction_do_not_touch_the_present_one(sender: Sender, late: str) -> None:
    """B12: neither is the present one fenced by it, nor sent twice."""
    sender.send(INVOICES, epoch=0)
    (sent,) = sender.cluster.on_the_way
    sender.cluster.on_the_way.clear()
    sender.world.do(lambda: sender.sender.forget(0))
    present = sender.send(INVOICES, epoch=1)
    if late == "a newer coordinator":
        sender.cluster.partitions[INVOICES].errors = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        sender.world.do(lambda: sent.on_response(sender.cluster.respond(sent.request)))
    else:
        sender.world.do(lambda: sent.on_response(None))
    sender.sleep()
    assert len(sender.cluster.on_the_way) == 1
    sender.deliver()
    assert sender.done == [present]
    assert [marker.producer_epoch for marker in sender.cluster.partitions[INVOICES].markers] == [1]


def test_resignation_forgets_the_transactions_of_its_partition_only(sender: Sender) -> None:
    sender.send(INVOICES, transactional_id="lost", log_partition=0)
    kept = sender.send(INVOICES, transactional_id="kept", log_partition=1)
    sender.world.do(lambda: sender.sender.forget(0))
    sender.deliver()
    sender.sleep()
    assert (sender.done, len(sender.sender)) == ([kept], 0)


def test_response_that_comes_twice_completes_once(sender: Sender) -> None:
    """B13: completion happens at most once."""
    sender.send(INVOICES)
    (sent,) = sender.cluster.on_the_way
    for _ in range(2):
        sender.deliver()
        sender.world.do(lambda: sent.on_response(sender.cluster.respond(sent.request)))
    assert len(sender.done) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_last_partition_completes_in_whichever_order_they_finish(sender: Sender, order: tuple[int, int]) -> None:
    """B14: completion is never lost when markers finish between two checks."""
    sender.cluster.partitions[SHIPMENTS].leader = ANYWHERE
    markers = sender.send(INVOICES, SHIPMENTS)
    sent = list(sender.cluster.on_the_way)
    for index in order:
        assert sender.done == []
        sender.world.do(lambda one=sent[index]: one.on_response(sender.cluster.respond(one.request)))  # type: ignore[misc]
    assert sender.done == [markers]


def test_last_partition_that_turns_out_to_be_deleted_completes(sender: Sender) -> None:
    """B14: also when nothing is left to be answered."""
    sender.cluster.partitions[SHIPMENTS].leader = None
    markers = sender.send(INVOICES, SHIPMENTS)
    sender.deliver()
    sender.cluster.delete_topic("shipments")
    sender.sleep()
    assert sender.done == [markers]


# With the coordinator: completion in the log


def test_completion_that_the_log_refuses_is_tried_until_it_is_written_once() -> None:
    """B13, B14: Complete* is appended once, and never lost."""
    with world() as w:
        w.cluster.add_topic("invoices", leader=ELSEWHERE)
        producer = w.producer()
        w.add(producer, INVOICES)
        call = w.end(producer)
        w.turn()
        w.log.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS] * 4
        w.do(w.cluster.deliver)
        assert call.wait() is ErrorCode.NONE
        assert w.end(producer).response is ErrorCode.CONCURRENT_TRANSACTIONS
        w.sleep(5)
        assert w.log.states("id")[2:] == ["PrepareCommit@0", "CompleteCommit@0"]
        assert w.described().state is TransactionState.COMPLETE_COMMIT
        assert len(w.markers(INVOICES)) == 1


def test_completion_is_not_appended_for_a_partition_that_was_lost() -> None:
    """B13: the retry of an older ownership does nothing once the successor has taken over."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.cluster.partitions[INVOICES].leader = ELSEWHERE
        w.end(producer)
        w.turn()
        w.log.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
        w.do(w.cluster.deliver)
        former = w.log.epoch_log
        assert former is not None
        w.elect()
        w.turn()
        w.do(w.cluster.deliver)
        w.sleep(5)
        assert w.log.states("id")[2:] == ["PrepareCommit@0", "CompleteCommit@0"]
        assert former.late_appends == 0


def test_partition_that_was_lost_sends_no_markers() -> None:
    """B12: its successor does, under its own epoch."""
    with world() as w:
        w.cluster.add_topic("invoices", leader=ELSEWHERE)
        producer = w.producer()
        w.add(producer, INVOICES)
        w.end(producer)
        w.turn()
        w.log.depose()
        w.do(lambda: w.coordinator.on_resigned(0))
        w.do(w.cluster.lose)
        w.sleep(5)
        assert w.cluster.on_the_way == []


def test_deleted_topic_does_not_keep_a_transaction_open() -> None:
    """B15: from the request to the completion in the log."""
    with world() as w:
        w.cluster.add_topic("invoices")
        w.cluster.add_topic("shipments")
        producer = w.producer()
        w.add(producer, INVOICES, SHIPMENTS)
        w.cluster.delete_topic("invoices")
        assert w.end(producer).response is ErrorCode.NONE
        assert w.described().state is TransactionState.COMPLETE_COMMIT
        assert len(w.markers(SHIPMENTS)) == 1


@pytest.mark.parametrize("version", [0, 1])
def test_leader_that_knows_no_transaction_versions_gets_its_marker_all_the_same(version: int) -> None:
    """KAFKA-20322: what its version of the request has no field for is left out."""
    marker = WritableTxnMarker(producer_id=4000, producer_epoch=1, transaction_version=2)
    assert encode(WriteTxnMarkersRequest(markers=[marker]), version) == encode(
        WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=4000, producer_epoch=1)]), version
    )


@pytest.mark.parametrize(("version", "epochs"), [(0, [7, 7]), (1, [7, 7]), (2, [])])
def test_marker_names_the_leaderships_that_it_is_sent_to(sender: Sender, version: int, epochs: list[int]) -> None:
    """B109: from version 2 on its own epoch tells that it is late."""
    sender.cluster.add_topic("many", 2, leader=ELSEWHERE)
    partitions = [TopicPartition("many", index) for index in range(2)]
    for partition in partitions:
        sender.cluster.partitions[partition].leader_epoch = 7
    markers = PendingMarkers("id", prepared(*partitions, version=version), log_partition=0, coordinator_epoch=5)
    sender.world.do(lambda: sender.begin(markers))
    sender.world.turn()
    (sent,) = sender.cluster.on_the_way
    assert [topic.leader_epochs for marker in sent.request.markers for topic in marker.topics] == [epochs]


@pytest.mark.parametrize(("version", "expected"), [(0, b"i" * 16), (1, b"i" * 16), (2, ZERO_UUID)])
def test_marker_names_the_topic_that_it_is_sent_to(sender: Sender, version: int, expected: bytes) -> None:
    """B123: as its name may be that of another topic when it arrives."""
    sender.cluster.add_topic("many", 2, leader=ELSEWHERE)
    sender.cluster.topic_ids["many"] = b"i" * 16
    partitions = [TopicPartition("many", index) for index in range(2)]
    markers = PendingMarkers("id", prepared(*partitions, version=version), log_partition=0, coordinator_epoch=5)
    sender.world.do(lambda: sender.begin(markers))
    sender.world.turn()
    (sent,) = sender.cluster.on_the_way
    assert [topic.topic_id for marker in sent.request.markers for topic in marker.topics] == [expected]


MANY = 12_000
LEAST_ELEMENTS = 7_000
"""What a broker accepts in WriteTxnMarkers if ``oncelog.request.max.elements`` is set to the least."""


@pytest.mark.parametrize("leader", [HERE, ELSEWHERE])
def test_transaction_over_12000_partitions_ends(leader: int) -> None:
    """B12: each in a topic of its own, which makes the most elements; brokers that accept few accept each request."""
    with world() as w:
        topics = [f"t{index}" for index in range(MANY)]
        for topic in topics:
            w.cluster.add_topic(topic, leader=leader)
        partitions = [TopicPartition(topic, 0) for topic in topics]
        producer = w.producer()
        w.add(producer, *partitions)
        end = w.end(producer)
        w.turn()
        for sent in w.cluster.on_the_way:
            assert elements(sent.request) <= LEAST_ELEMENTS
        assert len(w.cluster.on_the_way) == (0 if leader == HERE else MANY // MOST_PARTITIONS)
        w.do(w.cluster.deliver)
        w.turn(MANY // PARTITIONS_PER_TURN + 1)
        assert end.wait() is ErrorCode.NONE
        assert w.described().state is TransactionState.COMPLETE_COMMIT
        assert all(len(w.markers(partition)) == 1 for partition in partitions)


def elements(request: WriteTxnMarkersRequest) -> int:
    """As a broker counts them, which refuses more than it accepts."""
    buffer = encode(request, 1)
    decoder(WriteTxnMarkersRequest, 1)(buffer, 0, LEAST_ELEMENTS)
    topics = [topic for marker in request.markers for topic in marker.topics]
    return len(request.markers) + len(topics) + sum(len(t.partition_indexes) + len(t.leader_epochs) for t in topics)


def test_markers_of_many_transactions_share_requests_that_fit(sender: Sender) -> None:
    """A transaction may lie in two of them."""
    sender.cluster.add_topic("many", 3 * MOST_PARTITIONS, leader=ELSEWHERE)
    partitions = [TopicPartition("many", index) for index in range(3 * MOST_PARTITIONS)]
    cuts = [0, MOST_PARTITIONS - 1, MOST_PARTITIONS + 1, 3 * MOST_PARTITIONS]

    def send() -> None:
        for number, (start, end) in enumerate(itertools.pairwise(cuts)):
            sender.begin(sender.pending(*partitions[start:end], transactional_id=f"id-{number}"))

    sender.world.do(send)
    sender.world.turn()
    assert [elements(sent.request) for sent in sender.cluster.on_the_way] == [
        2 * MOST_PARTITIONS + 4,
        2 * MOST_PARTITIONS + 4,
        2 * MOST_PARTITIONS + 2,
    ]
    sender.deliver()
    assert len(sender.done) == 3
    assert not len(sender.sender)


def test_pieces_that_are_lost_together_are_one_attempt(sender: Sender) -> None:
    """Attempts tell how long a partition has been missing."""
    sender.cluster.add_topic("many", 3 * MOST_PARTITIONS, leader=ELSEWHERE)
    markers = sender.send(*(TopicPartition("many", index) for index in range(3 * MOST_PARTITIONS)))
    for attempt in range(1, 4):
        assert len(sender.cluster.on_the_way) == 3
        sender.lose()
        assert markers.attempts == attempt
        sender.sleep()
    sender.deliver()
    assert sender.done == [markers]
