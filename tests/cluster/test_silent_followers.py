"""Both followers of a group's coordinator are stopped, and a static member of librdkafka with a short session stays."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.processes import ClusterProcess

TOPIC: Final = "orders"
GROUP: Final = "g"
SECONDS: Final = 300
POLLS: Final = 5 * SECONDS
POLL_SECONDS: Final = 0.2
SESSION_MS: Final = 6_000
POLLS_BEYOND_SESSION: Final = int((SESSION_MS / 1000 + 3) / POLL_SECONDS)
"""So long the silence lasts: a member whose heartbeats were refused all that time has lost its session."""
SILENT: Final = re.compile(r"WARNING.*__consumer_offsets-\d+: no in-sync follower fetches")
OVER: Final = re.compile(r"INFO.*__consumer_offsets-0.*an in-sync follower fetches again")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    settings = ["offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0"]
    settings.append("zookeeper.session.timeout.ms=40000")  # Those who are stopped stay in sync.
    with ClusterProcess(tmp_path, settings=settings) as running:
        yield running


class Member:
    """A static member that notes whatever ends its membership."""

    def __init__(self, cluster: ClusterProcess) -> None:
        self.failures: list[str] = []
        self.unanswered = 0
        """Commits that librdkafka may still repeat, and so bring behind later ones."""
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.address,
                "group.id": GROUP,
                "group.instance.id": "one",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 1_500,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "error_cb": self._failed,
                "on_commit": self._committed,
            }
        )
        gone: Any = lambda _, partitions: self.failures.append(f"it gives up {partitions}")  # noqa: E731
        self.consumer.subscribe([TOPIC], on_lost=gone, on_revoke=gone)

    def _failed(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(str(error))

    def _committed(self, error: Any, partitions: object) -> None:
        self.unanswered -= 1

    def commit_soon(self, offset: int) -> None:
        self.unanswered += 1
        self.consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=True)

    def poll_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(POLLS):
            self.poll()
            if condition():
                return
        raise AssertionError("it does not happen")

    def poll(self) -> Message | None:
        message = self.consumer.poll(POLL_SECONDS)
        if message is not None and message.error() is not None:
            self.failures.append(str(message.error()))
        return message

    def commit(self, offset: int) -> None:
        """Repeat what may not be possible yet."""
        for _ in range(SECONDS):
            try:
                (done,) = self.consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                self.poll()
                continue
            assert done.error is None
            return
        raise AssertionError("it cannot commit")


def log_of(cluster: ClusterProcess, broker_id: int) -> str:
    (path,) = cluster.cluster_directory.glob(f"**/broker-{broker_id}*.log")
    return path.read_text()


def test_static_member_keeps_its_session_and_commits_while_both_followers_are_stopped(cluster: ClusterProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.address})
    admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])[TOPIC].result(SECONDS)
    producer = Producer({"bootstrap.servers": cluster.address})
    producer.produce(TOPIC, b"value", partition=0)
    assert producer.flush(SECONDS) == 0
    member = Member(cluster)
    try:
        member.poll_until(lambda: bool(member.consumer.assignment()))
        member.commit(1)
        described = admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS)
        coordinator = described.coordinator.id
        followers = [broker for broker in (1, 2, 3) if broker != coordinator]
        cluster.verb("pause", *followers)
        member.poll_until(lambda: SILENT.search(log_of(cluster, coordinator)) is not None)
        for _ in range(POLLS_BEYOND_SESSION):
            if not member.unanswered:
                member.commit_soon(1)
            member.poll()
        cluster.verb("resume", *followers)
        member.poll_until(lambda: not member.unanswered)
        member.commit(2)
        assert not member.failures
        assert member.consumer.assignment()
        (committed,) = member.consumer.committed([TopicPartition(TOPIC, 0)], timeout=SECONDS)
        assert committed.offset == 2
        member.poll_until(lambda: OVER.search(log_of(cluster, coordinator)) is not None)
    finally:
        member.consumer.close()
    log = log_of(cluster, coordinator)
    assert len(SILENT.findall(log)) == 1
    assert len(OVER.findall(log)) == 1
