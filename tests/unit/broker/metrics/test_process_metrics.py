"""Idle time of the loop in virtual time, and what the kernel says of a process's I/O."""

import asyncio
from pathlib import Path

from oncelog.broker.metrics.loop_idle import LoopIdle
from oncelog.broker.metrics.process_metrics import disk_metrics, idle_metrics, read_io_counts
from tests.unit.broker.metrics.test_monitor import values
from tests.unit.broker.virtual_time import in_virtual_time

SECOND = 1_000_000_000


class Thread:
    """A thread, and how long it has run."""

    def __init__(self) -> None:
        self.nanoseconds = 0

    def clock(self) -> int:
        return self.nanoseconds


@in_virtual_time
async def test_idle_share_is_of_the_last_minute_and_the_counter_of_all_time() -> None:
    thread = Thread()
    idle = LoopIdle(thread.clock)
    assert idle.share is None
    idle.start()
    await asyncio.sleep(100)
    thread.nanoseconds += 30 * SECOND  # All at once, at the end of a hundred seconds.
    assert idle.share is not None
    assert abs(idle.share - 0.5) < 0.01
    assert idle.idle_nanoseconds is not None
    assert abs(idle.idle_nanoseconds - 70 * SECOND) < SECOND
    await asyncio.sleep(61)
    assert idle.share == 1.0
    idle.stop()


@in_virtual_time
async def test_idle_time_is_shown_under_both_spellings() -> None:
    thread = Thread()
    idle = LoopIdle(thread.clock)
    assert values(idle_metrics(idle)) == {}
    idle.start()
    await asyncio.sleep(10)
    thread.nanoseconds += 10 * SECOND
    idle.stop()
    shown = values(idle_metrics(idle))
    assert shown.pop("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total") < SECOND
    assert set(shown) == {
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    }
    assert max(shown.values()) < 0.01


def test_disk_bytes_are_those_of_the_kernel_and_absent_where_it_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "io"
    file.write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n")
    name = "kafka_server_kafkaserver_linux_disk"
    assert values(disk_metrics(read_io_counts(str(file)))) == {f"{name}_read_bytes": 4096, f"{name}_write_bytes": 8192}
    assert values(disk_metrics(read_io_counts(str(tmp_path / "none")))) == {}
