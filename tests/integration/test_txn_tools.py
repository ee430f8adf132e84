"""The tools for stuck transactions against a broker process, where transactions really hang.

The broker does not verify batches with their coordinator, as brokers before KIP-890 did not; so what arrives after the
end of its transaction opens one that no producer ends. ``INTEROP_BROKER=kafka`` plays the same against Apache Kafka.
"""

import os
from collections.abc import AsyncIterator, Iterator
from random import Random

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.hanging_transactions import Reason
from oncelog.clients.admin.offsets import LATEST
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition
from tests.command import Oncelog
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.simulation import requests
from tests.simulation.wire_client import WireClient

IS_KAFKA = os.environ.get("INTEROP_BROKER") == "kafka"
SETTINGS = (
    "transaction.partition.verification.enable=false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    kind = KafkaProcess if IS_KAFKA else OncelogProcess
    with kind(tmp_path_factory.mktemp("broker"), SETTINGS) as process:
        yield process


@pytest.fixture
def oncelog(broker: BrokerProcess) -> Oncelog:
    return Oncelog(broker.address)


@pytest.fixture
async def stage(broker: BrokerProcess, request: pytest.FixtureRequest) -> AsyncIterator["Stage"]:
    async with Admin(broker.address, rng=Random(1)) as admin:
        stage = Stage(admin, broker, request.node.name)
        await stage.prepare()
        yield stage
        for producer in stage.producers:
            producer.disconnect()


class Stage:
    """A topic of two partitions and a group, named like the test, and producers of protocol version 1."""

    def __init__(self, admin: Admin, broker: BrokerProcess, name: str) -> None:
        self.admin = admin
        self.name = name
        self.port = int(broker.address.rpartition(":")[2])
        self.first, self.second = TopicPartition(name, 0), TopicPartition(name, 1)
        self.producers: list[ScriptedProducer] = []

    async def prepare(self) -> None:
        from oncelog.clients.admin.topics import NewTopic

        assert await self.admin.create_topics([NewTopic(name=self.name, partitions=2)]) == {self.name: None}
        await self.admin.describe_groups([self.name])  # A request for a group creates __consumer_offsets.

    async def producer(self, transactional_id: str, *, timeout_ms: int = 60_000) -> ScriptedProducer:
        producer = ScriptedProducer(lambda: WireClient.connect(self.port), transactional_id, timeout_ms=timeout_ms)
        self.producers.append(producer)
        ok(await producer.init())
        return producer

    async def hang(self, transactional_id: str, *, with_offsets: bool = False) -> int:
        """Commit a record, and let another arrive too late: the offset where its transaction hangs."""
        producer = await self.producer(transactional_id)
        await producer.open_transaction({self.first: [b"in time"]})
        if with_offsets:
            ok(await producer.add_offsets(self.name))
            ok(await producer.commit_offsets(self.name, {self.second: 1}))
        late = producer.batch(self.first, b"late")
        ok(await producer.end(commit=True))
        await self.until(transactional_id, "CompleteCommit")
        response = await producer.produce(late, self.first)
        ok(ErrorCode(response.error_code))
        if with_offsets:
            ok(await producer.commit_offsets(self.name, {self.second: 2}))
        return int(response.base_offset)

    async def until(self, transactional_id: str, state: str) -> None:
        attempts = self.admin.cluster.attempts()
        while await self.state(transactional_id) != state:
            assert await attempts.pause(), f"{transactional_id} never becomes {state}"

    async def state(self, transactional_id: str) -> str:
        described = (await self.admin.describe_transactions([transactional_id]))[transactional_id]
        assert not isinstance(described, Refusal), described
        return described.state

    async def last_stable_offset(self, partition: TopicPartition) -> int | None:
        return (await self.admin.list_offsets({partition: LATEST}, read_committed=True)).found[partition].offset

    async def end(self, partition: TopicPartition) -> int | None:
        return (await self.admin.list_offsets({partition: LATEST})).found[partition].offset

    async def start_offsets(self, partition: TopicPartition) -> list[int]:
        """Where the partition's open transactions began."""
        producers = (await self.admin.describe_producers([partition])).found[partition]
        return [each.transaction_start_offset for each in producers if each.transaction_start_offset is not None]

    async def group_offset(self) -> int | ErrorCode:
        """Where the group stands in the second partition, or the error that hides it."""
        responses = await self.admin.committed_offsets_of_groups({self.name: [self.second]}, require_stable=True)
        offsets = responses[self.name]
        assert not isinstance(offsets, Refusal), offsets
        if self.second in offsets.failed:
            return offsets.failed[self.second]
        return offsets.found[self.second].offset if self.second in offsets.found else -1

    async def hanging_offsets(self) -> TopicPartition:
        """The partition where the group's offsets hang."""
        topic = (await self.admin.describe_topics([GROUP_METADATA_TOPIC_NAME]))[GROUP_METADATA_TOPIC_NAME]
        assert not isinstance(topic, Refusal), topic
        partitions = [TopicPartition(GROUP_METADATA_TOPIC_NAME, each.partition) for each in topic.partitions]
        findings = await self.admin.find_hanging_transactions(partitions, now_ms=0)
        (found,) = findings.hanging
        return found.open.topic_partition


async def test_hanging_transaction_is_found_and_aborted_and_all_agree(stage: Stage, oncelog: Oncelog) -> None:
    start = await stage.hang("late-1")
    assert await stage.last_stable_offset(stage.first) == start
    (found,) = oncelog.json(f"txn find-hanging --topic {stage.name}")
    assert (found["partition"], found["start_offset"], found["transactional_id"]) == (0, start, "late-1")
    assert found["reason"] == Reason.NOT_IN_TRANSACTION.value
    assert oncelog.json(f"txn find-hanging --topic {stage.name} --partition 1") == []
    assert found in [
        {**each, "duration_min": found["duration_min"]} for each in oncelog.json("txn find-hanging --broker-id 1")
    ]

    done = oncelog.json(f"txn abort --topic {stage.name} --partition 0 --start-offset {start}")
    assert (done["action"], done["coordinator_says"], done["partitions"]) == (
        "marker",
        "CompleteCommit",
        [str(stage.first)],
    )
    assert done["agreed"]
    assert all(check["agrees"] for check in done["checks"])

    assert await stage.start_offsets(stage.first) == []
    assert await stage.last_stable_offset(stage.first) == await stage.end(stage.first)
    assert await stage.state("late-1") == "CompleteCommit"
    assert oncelog.json(f"txn find-hanging --topic {stage.name}") == []
    assert oncelog(f"consume {stage.name} -e --format value").split("\n") == ["in time", ""]


async def test_offsets_that_hang_are_aborted_for_themselves(stage: Stage, oncelog: Oncelog) -> None:
    start = await stage.hang("late-2", with_offsets=True)
    assert await stage.group_offset() == ErrorCode.UNSTABLE_OFFSET_COMMIT
    offsets = await stage.hanging_offsets()

    done = oncelog.run(f"txn abort --topic {stage.name} --partition 0 --start-offset {start}")
    assert done.returncode == 1, "the group's offsets still hang"
    assert f"pending in {offsets} from offset" in done.stdout

    (pending,) = await stage.start_offsets(offsets)
    said = oncelog(f"txn abort --topic {GROUP_METADATA_TOPIC_NAME} -p {offsets.partition} --start-offset {pending}")
    assert f"stable in {stage.name}" in said
    assert "Done, and all is ok." in said
    assert await stage.group_offset() == 1, "what was committed in time"


async def test_ongoing_transaction_is_aborted_through_its_coordinator(stage: Stage, oncelog: Oncelog) -> None:
    """A marker in one partition would have left the rest to be committed."""
    producer = await stage.producer("live-1")
    await stage.producer("bystander")
    await producer.open_transaction({stage.first: [b"one"], stage.second: [b"two"]})
    ok(await producer.add_offsets(stage.name))
    ok(await producer.commit_offsets(stage.name, {stage.second: 7}))
    assert oncelog.json(f"txn find-hanging --topic {stage.name}") == []

    done = oncelog.json(f"txn abort --topic {stage.name} --partition 0 --producer-id {producer.producer_id}")
    assert (done["action"], done["transactional_id"], done["agreed"]) == ("fence", "live-1", True)
    assert {str(stage.first), str(stage.second)} < set(done["partitions"])

    for partition in (stage.first, stage.second):
        assert await stage.start_offsets(partition) == []
        assert await stage.last_stable_offset(partition) == await stage.end(partition)
    assert await stage.group_offset() == -1
    assert await producer.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert await stage.state("live-1") == "Empty"
    assert oncelog(f"consume {stage.name} -e --format value") == ""


async def test_producer_of_version_2_goes_on_after_a_marker_for_what_hung(stage: Stage, oncelog: Oncelog) -> None:
    """The marker has the epoch that the producer lives in: a greater one would have fenced it on this partition."""
    producer = await stage.producer("goes-on")
    stray = producer.batch(stage.first, b"stray")
    ok(ErrorCode((await producer.produce(stray, stage.first)).error_code))
    producer.advance(stage.first, 1)
    (found,) = oncelog.json(f"txn find-hanging --topic {stage.name}")
    assert found["reason"] == Reason.NOT_IN_TRANSACTION.value
    done = oncelog.json(f"txn abort --topic {stage.name} --partition 0 --start-offset 0")
    assert (done["action"], done["agreed"]) == ("marker", True)

    client = await WireClient.connect(stage.port)
    batch = producer.batch(stage.first, b"kept")
    response = await client.call(
        requests.produce(stage.first, batch, transactional_id="goes-on"), requests.TRANSACTION_2_PRODUCE_VERSION
    )
    ok(ErrorCode(response.responses[0].partition_responses[0].error_code))
    ended = await client.call(producer.end_request(commit=True), requests.TRANSACTION_2_END_TXN_VERSION)
    assert (ErrorCode(ended.error_code), ended.producer_epoch) == (ErrorCode.NONE, producer.epoch + 1)
    client.close()
    await stage.until("goes-on", "CompleteCommit")
    assert oncelog(f"consume {stage.name} -e --format value") == "kept\n"
    (commit,) = [row for row in oncelog.json("txn log goes-on")["records"] if row["state"] == "PrepareCommit"]
    assert (commit["version"], commit["epoch"], commit["fenced"]) == (2, producer.epoch + 1, None)


async def test_dry_run_only_says_what_would_be_done(stage: Stage, oncelog: Oncelog) -> None:
    start = await stage.hang("late-3")
    said = oncelog(f"txn abort --topic {stage.name} --partition 0 --start-offset {start} --dry-run")
    assert "an abort marker is written to this partition" in said
    assert await stage.start_offsets(stage.first) == [start]


async def test_abort_of_a_transaction_that_is_not_open_is_refused(stage: Stage, oncelog: Oncelog) -> None:
    start = await stage.hang("late-4")
    words = f"txn abort --topic {stage.name} --partition 0"
    assert "INVALID_TXN_STATE" in oncelog.fails(f"{words} --start-offset {start - 1}")
    assert "INVALID_TXN_STATE" in oncelog.fails(f"{words} --start-offset {start} --producer-epoch 9")
    assert "INVALID_TXN_STATE" in oncelog.fails(f"txn abort --topic {stage.name} --partition 1 --start-offset {start}")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in oncelog.fails("txn abort --topic nothing --partition 0 --start-offset 0")
    assert await stage.start_offsets(stage.first) == [start]


async def test_old_transaction_is_distinguished_from_a_hanging_one(stage: Stage, oncelog: Oncelog) -> None:
    producer = await stage.producer("slow")
    await producer.open_transaction({stage.second: [b"slow"]})
    (found,) = oncelog.json(f"txn find-hanging --topic {stage.name} --max-transaction-timeout 0")
    assert (found["transactional_id"], found["reason"]) == ("slow", Reason.TOO_LONG.value)


async def test_force_terminate_fences_and_tells_the_old_and_the_new_epoch(stage: Stage, oncelog: Oncelog) -> None:
    producer = await stage.producer("live-2")
    await producer.open_transaction({stage.second: [b"one"]})
    done = oncelog.json("txn force-terminate --transactionalId live-2")
    assert (done["old_producer_id"], done["old_producer_epoch"], done["old_state"]) == (
        producer.producer_id,
        0,
        "Ongoing",
    )
    assert (done["producer_id"], done["state"]) == (producer.producer_id, "Empty")
    assert done["producer_epoch"] > 0
    assert done["partitions"] == [{"topic": stage.name, "partition": 1}]
    assert await stage.last_stable_offset(stage.second) == await stage.end(stage.second)
    assert (await producer.send(stage.second, b"undead")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_force_terminate_makes_no_transactional_id(stage: Stage, oncelog: Oncelog) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in oncelog.fails("txn force-terminate nobody")
    assert "nobody" not in [listed["transactional_id"] for listed in oncelog.json("txn list")]


async def test_log_shows_the_history_of_a_transactional_id(stage: Stage, oncelog: Oncelog) -> None:
    """A commit, a time-out, and a successor, with whom each of them fenced."""
    producer = await stage.producer("told", timeout_ms=3_000)  # A busy machine commits within that.
    await producer.transaction({stage.first: [b"one"]})
    await stage.until("told", "CompleteCommit")
    await producer.open_transaction({stage.first: [b"two"], stage.second: [b"three"]})
    await stage.until("told", "CompleteAbort")
    successor = await stage.producer("told")

    reported = oncelog.json("txn log told")
    steps = [(each["state"], each["producer_id"], each["fenced"]) for each in reported["records"]]
    owner = producer.producer_id
    assert steps == [
        ("Empty", owner, None),
        ("Ongoing", owner, None),
        ("PrepareCommit", owner, None),
        ("CompleteCommit", owner, None),
        ("Ongoing", owner, None),
        ("PrepareAbort", owner, f"{owner} epoch 0"),
        ("CompleteAbort", owner, None),
        ("Empty", owner, None),
    ]
    assert reported["records"][-1]["epoch"] == successor.epoch
    assert reported["records"][1]["partitions"] == [str(stage.first)]
    assert reported["records"][5]["partitions"] == [str(stage.first), str(stage.second)]
    assert reported["records"][5]["why"].startswith("open for more than")
    assert "3000 ms" in reported["records"][5]["why"]
    assert reported["records"][5]["source"] == ("derived" if IS_KAFKA else "recorded")
    assert reported["log"].startswith("__transaction_state-")
    table = oncelog("txn log told")
    assert "compaction leaves only the newest record" in table
    assert "TRANSACTIONAL_ID_NOT_FOUND" in oncelog.fails("txn log nobody")


async def test_log_shows_which_producer_was_fenced(stage: Stage, oncelog: Oncelog) -> None:
    producer = await stage.producer("fenced")
    await producer.open_transaction({stage.first: [b"one"]})
    oncelog("txn force-terminate fenced")
    reported = oncelog.json("txn log fenced")["records"]
    (abort,) = [each for each in reported if each["state"] == "PrepareAbort"]
    assert abort["fenced"] == f"{producer.producer_id} epoch 0"
    if IS_KAFKA:
        assert (abort["source"], abort["why"]) == ("derived", "InitProducerId of a successor")
    else:
        assert abort["source"] == "recorded"
        assert "InitProducerId from client 'oncelog-cli' at 127.0.0.1" in abort["why"]


async def test_producer_is_described_as_its_partition_knows_it(stage: Stage, oncelog: Oncelog) -> None:
    producer = await stage.producer("described")
    await producer.open_transaction({stage.second: [b"one"]})
    by_leader = oncelog.json(f"txn producers {stage.name}")
    assert by_leader == oncelog.json(f"txn producers --topic {stage.name} --partition 1 --broker-id 1")
    (found,) = by_leader
    assert (found["partition"], found["producer_id"], found["transaction_start_offset"]) == (1, producer.producer_id, 0)
    described = oncelog.json("txn describe --transactional-id described")
    assert (described["coordinator"], described["state"], described["timeout_ms"]) == (1, "Ongoing", 60_000)
    listed = oncelog.json("txn list --transactional-id-pattern describ.d --duration-filter 0")
    assert [each["transactional_id"] for each in listed] == ["described"]
