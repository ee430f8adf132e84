"""What the families say of a broker, and when a broker is ready."""

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.metrics.exposition import Families, write_families
from oncelog.broker.metrics.family_parts import ROWS_AT_ONCE
from oncelog.broker.metrics.monitor import broker_families, storage_metrics, task_metrics, warnings, why_not_ready
from oncelog.broker.metrics.partition_metrics import (
    LATE_AFTER_MS,
    Clock,
    led_partition_metrics,
    log_metrics,
    replica_metrics,
)
from oncelog.broker.metrics.topic_metrics import topic_metrics
from oncelog.broker.metrics.transaction_metrics import verification_metrics
from oncelog.broker.replication.follower_state import NEVER
from oncelog.broker.replication.requested_states import EPOCH_DURING_DELETE
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.broker.transactions.verification_metrics import VerificationMetrics
from oncelog.coordinator.controller.cluster_image import BrokerImage
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.handlers.administration import ask, running_broker
from tests.unit.broker.replica_side import ME, OTHER, ReplicaSide
from tests.unit.broker.virtual_time import in_virtual_time

NOW = Clock(now_ms=0, max_timeout_ms=900_000)


def values(families: Families) -> dict[str, float]:
    """By the sample's name, with its labels' values behind it."""
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for family in families
        if family is not None
        for sample in family.samples
    }


def replica_values(side: ReplicaSide) -> dict[str, float]:
    return values(replica_metrics(side.replica_manager, side.replica_control, NOW))


async def test_whole_broker_can_be_written_and_read() -> None:
    async with running_broker() as broker:
        request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
        await ask(broker, handle_create_topics, request, CreateTopicsResponse)
        text = b"".join(await write_families(broker_families(broker))).decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        (leaders,) = families["kafka_server_replicamanager_leadercount"].samples
        (everything,) = families["kafka_controller_kafkacontroller_globalpartitioncount"].samples
        assert leaders.value == everything.value == 3
        assert all(family.documentation for family in families.values())


async def test_broker_is_ready_while_it_serves_and_has_a_controller() -> None:
    async with running_broker() as broker:
        assert why_not_ready(broker) is None
        image = broker.metadata.image
        broker.metadata.image = replace(image, brokers={2: BrokerImage(id=2, endpoints={})})
        assert why_not_ready(broker) == "no controller is known"
        broker.metadata.image = replace(broker.metadata.image, controller_id=2)
        assert why_not_ready(broker) == "the controller does not know this broker yet"
        broker.failure.set_result("the disk is gone")
        assert why_not_ready(broker) == "the broker cannot go on: the disk is gone"


async def test_partitions_that_are_not_whole_are_counted() -> None:
    side = ReplicaSide()
    two = LogConfig(min_insync_replicas=2)
    side.lead("whole", replicas=(ME, OTHER), isr=(ME, OTHER), config=two)
    side.lead("thin", replicas=(ME, OTHER), isr=(ME,), config=two)
    side.lead("one", count=3, replicas=(ME, OTHER), isr=(ME,))
    side.lead("followed", replicas=(ME, OTHER), leader=OTHER)
    counted = replica_values(side)
    manager = "kafka_server_replicamanager_"
    assert counted == {
        manager + "partitioncount": 6,
        manager + "leadercount": 5,
        manager + "offlinereplicacount": 0,
        manager + "underreplicatedpartitions": 4,
        manager + "underminisrpartitioncount": 1,
        manager + "atminisrpartitioncount": 4,
        manager + "produceridcount": 0,
        manager + "partitionswithlatetransactionscount": 0,
        "oncelog_deserted_coordinator_partitions": 0,
        "oncelog_unopened_logs": 0,
        "oncelog_refusing_logs": 0,
    }


async def test_coordinators_without_a_follower_that_fetches_are_counted() -> None:
    side = ReplicaSide()
    side.lead("__consumer_offsets", count=2, replicas=(ME, OTHER), isr=(ME, OTHER))
    side.lead("__transaction_state", replicas=(ME, OTHER), isr=(ME,))
    side.lead("t", replicas=(ME, OTHER), isr=(ME, OTHER))
    for partition in side.replica_manager.partitions():
        assert partition.leading is not None
        for follower in partition.leading.progress.followers.values():
            follower.last_fetch_ms = NEVER
    assert replica_values(side)["oncelog_deserted_coordinator_partitions"] == 2


async def test_partition_metrics_are_those_of_led_partitions_and_log_metrics_those_of_all() -> None:
    side = ReplicaSide()
    side.lead("t", count=2)
    side.lead("followed", replicas=(ME, OTHER), leader=OTHER)
    side.append(batch(b"a", b"b"))
    size = len(batch(b"c", producer_id=7, epoch=0, sequence=0, transactional=True))
    side.append(batch(b"c", producer_id=7, epoch=0, sequence=0, transactional=True))
    side.append(batch(b"c", producer_id=7, epoch=0, sequence=0, transactional=True))  # It is there already.
    counted = values(log_metrics(side.replica_manager)) | values(led_partition_metrics(side.replica_manager))
    assert counted["kafka_cluster_partition_laststableoffsetlag/t/0"] == 1
    assert counted["kafka_cluster_partition_laststableoffsetlag/t/1"] == 0
    assert counted["kafka_log_log_logendoffset/t/0"] == 3
    assert counted["kafka_log_log_logstartoffset/t/0"] == 0
    assert counted["kafka_log_log_size/t/0"] == size + len(batch(b"a", b"b"))
    assert counted["kafka_log_log_numlogsegments/t/0"] == 1
    assert counted["kafka_topic_partition_current_offset/t/0"] == 3
    assert counted["kafka_topic_partition_oldest_offset/t/0"] == 0
    logs = ("logstartoffset", "logendoffset", "size", "numlogsegments")
    assert {name for name in counted if "followed" in name} == {f"kafka_log_log_{name}/followed/0" for name in logs}
    of_topics = values(topic_metrics(side.replica_manager.traffic, produced=5, fetched=7))
    assert of_topics["kafka_server_brokertopicmetrics_messagesin_total/t"] == 3
    assert of_topics["kafka_server_brokertopicmetrics_bytesin_total/t"] == counted["kafka_log_log_size/t/0"]
    assert of_topics["kafka_server_brokertopicmetrics_bytesout_total/t"] == 0
    assert of_topics["kafka_server_brokertopicmetrics_totalproducerequests_total"] == 5
    assert of_topics["kafka_server_brokertopicmetrics_totalfetchrequestspersec_total"] == 7
    reporters = {name for name in of_topics if "persec" in name}
    assert {name.replace("persec", "") for name in reporters} == of_topics.keys() - reporters
    assert replica_values(side)["kafka_server_replicamanager_produceridcount"] == 1


async def test_partition_with_a_transaction_that_hangs_is_counted_once_it_is_late() -> None:
    side = ReplicaSide()
    side.lead("t", count=2)
    written_ms = 1_700_000_000_000
    side.append(batch(b"c", timestamp=written_ms, producer_id=7, epoch=0, sequence=0, transactional=True))

    def late(after_ms: int) -> float:
        clock = Clock(now_ms=written_ms + after_ms, max_timeout_ms=900_000)
        counted = values(replica_metrics(side.replica_manager, side.replica_control, clock))
        return counted["kafka_server_replicamanager_partitionswithlatetransactionscount"]

    assert late(900_000 + LATE_AFTER_MS) == 0
    assert late(900_001 + LATE_AFTER_MS) == 1
    side.append(marker(7, commit=True), origin=AppendOrigin.COORDINATOR)
    assert late(900_001 + LATE_AFTER_MS) == 0


def test_verification_metrics_count_time_and_failures() -> None:
    metrics = VerificationMetrics()
    metrics.record(3.0, 0)
    metrics.record(7.5, 2)
    manager = "kafka_server_addpartitionstotxnmanager_"
    assert values(verification_metrics(metrics)) == {
        manager + "verificationtimems_count": 2,
        manager + "verificationtimems_sum": 10.5,
        manager + "verificationtimems_max": 7.5,
        manager + "verificationfailure_total": 2,
    }


async def test_tasks_run_while_families_are_written() -> None:
    seen: list[int] = []
    turns = 0

    def families() -> Iterator[Metric]:
        for index in range(5):
            seen.append(turns)
            yield GaugeMetricFamily(f"family_{index}", "Some.", value=index)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        text = b"".join(await write_families(families()))
        counting.cancel()
    assert seen == sorted(set(seen))
    assert text.count(b"# TYPE") == 5


@in_virtual_time
async def test_family_of_many_partitions_is_written_as_one_though_it_comes_in_parts() -> None:
    side = ReplicaSide()
    side.lead("t", count=2 * ROWS_AT_ONCE + 1)
    parts = [part for part in log_metrics(side.replica_manager) if part is not None]
    assert max(len(part.samples) for part in parts) == ROWS_AT_ONCE
    families = log_metrics(side.replica_manager)
    text = b"".join(await write_families(chain([next(families)], gone_meanwhile(side), families))).decode()
    assert text.count("# TYPE kafka_log_log_size ") == 1
    counted = {family.name: len(family.samples) for family in text_string_to_metric_families(text)}
    assert counted["kafka_log_log_size"] == 2 * ROWS_AT_ONCE


def gone_meanwhile(side: ReplicaSide) -> Iterator[Metric]:
    """No family, but one partition fewer."""
    states = [StopReplicaPartitionState(partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True)]
    topics = [StopReplicaTopicState(topic_name="t", partition_states=states)]
    side.replica_control.stop_replica(StopReplicaRequest(controller_id=ME, controller_epoch=1, topic_states=topics))
    yield from ()


async def test_background_task_that_keeps_failing_is_counted_and_shown() -> None:
    async with running_broker() as broker:
        third, go_on, fourth = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def fail() -> None:
            if broker.supervisor.failures["sweeper"] < 2:
                raise ValueError("no such sector")
            (fourth if third.is_set() else third).set()
            await go_on.wait()

        assert warnings(broker) == []
        broker.supervisor.repeat(fail, "sweeper", 0.001)
        await third.wait()
        assert warnings(broker) == [
            "background task 'sweeper' keeps failing (2 times in a row): ValueError: no such sector"
        ]
        assert values(task_metrics(broker.supervisor))["oncelog_background_task_failing/sweeper"] == 1
        go_on.set()
        await fourth.wait()
        shown = values(task_metrics(broker.supervisor))
        assert shown["oncelog_background_task_failures_total/sweeper"] == 2
        assert shown["oncelog_background_task_failing/sweeper"] == 0
        assert {"oncelog_background_task_failures_total/log retention"} <= shown.keys()
        assert warnings(broker) == []


async def test_broker_with_a_full_disk_is_not_ready_and_says_why() -> None:
    async with running_broker() as broker:
        name = "kafka_log_logmanager_offlinelogdirectorycount"
        assert values(storage_metrics(broker))[name] == 0
        broker.log_manager.space.note(OSError(errno.ENOSPC, "No space left on device"), "t-0")
        assert values(storage_metrics(broker))[name] == 1
        assert why_not_ready(broker) == f"the disk of {broker.log_manager.log_dir} is full: writes are refused"
