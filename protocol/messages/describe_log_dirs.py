"""DescribeLogDirs (API key 35): versions 1-5, flexible from 2.

The log directories of a broker and the sizes of the partitions in them.

1: throttling moves to the client. 3: an error code for the whole request. 4: total and usable bytes of the volume.
5: whether a directory is cordoned.

The tagged field ``refusing_logs`` is our own.
"""

from oncelog.protocol.schema import OWN_TAGS, Message, array, array_of, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Message):
    topic: str = string("0+", default="")
    partitions: list[int] = array_of(int32, "0+", default_factory=list)


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(
        DescribableLogDirTopic, "0+", default_factory=list, nullable="0+"
    )


class DescribeLogDirsPartition(Message):
    partition_index: int = int32("0+", default=0)
    partition_size: int = int64("0+", default=0)
    offset_lag: int = int64("0+", default=0)
    is_future_key: bool = boolean("0+", default=False)


class DescribeLogDirsTopic(Message):
    name: str = string("0+", default="")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+", default_factory=list)


class DescribeLogDirsResult(Message):
    error_code: int = int16("0+", default=0)
    log_dir: str = string("0+", default="")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+", default_factory=list)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+", default=False)
    refusing_logs: int = int32("2+", default=0, tag=OWN_TAGS)
    """Replicas that take no writes because the broker can open no more files."""


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("3+", default=0)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+", default_factory=list)
