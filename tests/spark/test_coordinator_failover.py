"""A stream on a cluster of three brokers whose transaction coordinator is killed, again and again."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.clients.admin.transactions import ONGOING, TransactionListing
from oncelog.clients.errors import ClientError
from tests.processes import KAFKA_3_9, ClusterProcess
from tests.spark.copying_case import SECONDS, Case
from tests.spark.copying_query import ROWS_IN_BATCH
from tests.spark.other_end import OtherEnd
from tests.spark.streams import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.kills,
    pytest.mark.skipif(not KAFKA_3_9.is_dir(), reason="ZooKeeper's jars are missing: run `make peers`"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path) as process:
        yield process


def coordinator_of(end: OtherEnd, is_meant: Callable[[TransactionListing], bool]) -> int | None:
    """The broker that coordinates a transaction that is meant."""
    with suppress(ClientError):
        listed = end.client.run(end.client.admin.list_transactions())
        return next((each.coordinator for each in listed if is_meant(each)), None)
    return None


def is_drivers(listed: TransactionListing) -> bool:
    return listed.transactional_id.endswith(".driver")


def is_open_tasks(listed: TransactionListing) -> bool:
    return listed.state == ONGOING and not is_drivers(listed)


def wait_for_coordinator(query: "StreamingQuery", end: OtherEnd, is_meant: Callable[[TransactionListing], bool]) -> int:
    """While the query is at work."""
    found: list[int] = []

    def is_found() -> bool:
        coordinator = coordinator_of(end, is_meant)
        found.extend([] if coordinator is None else [coordinator])
        return bool(found)

    wait_for(query, is_found)
    return found[-1]


def test_rows_are_written_once_while_transaction_coordinators_are_killed(
    spark: "SparkSession", cluster: ClusterProcess, tmp_path: Path
) -> None:
    """That of a task's open transaction, that of the driver's, which decides, and again that of a task's."""
    with OtherEnd(cluster.address) as end:
        case = Case(end, lambda what: what, tmp_path, replicas=3)
        for is_meant in (is_open_tasks, is_drivers, is_open_tasks):
            case.add_rows(10 * ROWS_IN_BATCH)
            query = case.copying.start(spark, "")
            victim = wait_for_coordinator(query, end, is_meant)
            cluster.verb("kill", victim)
            cluster.verb("start", victim)
            assert query.awaitTermination(SECONDS)
        case.recover(spark)
        case.check()
