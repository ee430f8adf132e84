"""Ends of logs that go while their broker is down and its machine runs: a tool, a hand, or a file system did it.

Only losses that the broker must notice: of what its checkpoint of the high watermarks names.
"""

import random

from oncelog.broker.storage.checkpoints import REPLICATION_CHECKPOINT, OffsetCheckpoint
from oncelog.protocol.records.record_batch import iter_batches
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.journal import current_journal
from tests.simulation.sim_disk import SimDisk

_DATA = "/data"


def checkpointed_high_watermarks(disk: SimDisk) -> dict[TopicPartition, int]:
    """Return the high watermarks of the logs that have one above 0."""
    offsets = OffsetCheckpoint(disk, _DATA, REPLICATION_CHECKPOINT).read() or {}
    return {partition: offset for partition, offset in offsets.items() if offset > 0}


def remove_directory(disk: SimDisk, partition: TopicPartition) -> None:
    disk.remove_tree(f"{_DATA}/{partition}")


def remove_files(disk: SimDisk, partition: TopicPartition) -> None:
    directory = f"{_DATA}/{partition}"
    for name in disk.list_dir(directory):
        disk.remove(f"{directory}/{name}")


def cut_log(disk: SimDisk, partition: TopicPartition, end: int) -> None:
    """Remove the batches that begin at an offset or beyond, as if they had never been written."""
    directory = f"{_DATA}/{partition}"
    for name in (name for name in disk.list_dir(directory) if name.endswith(".log")):
        if int(name.removesuffix(".log")) >= end:
            disk.remove(f"{directory}/{name}")
            continue
        file = disk.open(f"{directory}/{name}")
        batches = iter_batches(memoryview(disk.read(f"{directory}/{name}")))
        file.truncate(next((at for at, header in batches if header.base_offset >= end), file.size()))
        file.close()


def lose_end(disk: SimDisk, rng: random.Random) -> None:
    """Take the end of one log away, if there is any whose high watermark is checkpointed."""
    high_watermarks = checkpointed_high_watermarks(disk)
    if not high_watermarks:
        return
    partition = rng.choice(sorted(high_watermarks))
    end = rng.choice([None, rng.randrange(high_watermarks[partition])])
    current_journal().note(disk.name, "lost end", f"of {partition} from {0 if end is None else end} on")
    if end is None:
        rng.choice([remove_directory, remove_files])(disk, partition)
    else:
        cut_log(disk, partition, end)
