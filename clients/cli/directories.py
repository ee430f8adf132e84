"""Directories of a broker that accept no writes, or none to some of their logs, as DescribeLogDirs shows them."""

from typing import Final, NamedTuple

from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

_SECONDS: Final = 3.0

DIRECTORY_ADVICE: Final = "free space on its volume or enlarge it, or see why it fails: the broker's output says more"
OPEN_FILES_ADVICE: Final = (
    "raise the limit of open files of the broker's process (RLIMIT_NOFILE, `ulimit -n`), or move partitions to others"
)


class FailedDirectories(NamedTuple):
    """What a broker cannot write."""

    paths: tuple[str, ...] = ()
    """Directories that accept no writes."""
    refusing_logs: int = 0
    """Logs that accept none because the broker can open no more files."""


async def failed_directories(connection: Connection) -> FailedDirectories:
    """Return what the broker on the connection cannot write; nothing if it does not say."""
    try:
        response = await connection.send(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse, timeout=_SECONDS)
    except ClientError:
        return FailedDirectories()
    paths = tuple(each.log_dir for each in response.results if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR)
    return FailedDirectories(paths, sum(each.refusing_logs for each in response.results))


def about_directory(path: str) -> str:
    """Return what a failed directory means for clients."""
    return f"{path} takes no writes (KAFKA_STORAGE_ERROR), as its disk is full or fails: clients cannot write here"


def about_open_files(refusing_logs: int) -> str:
    """Return what a lack of file descriptors means for the logs of a broker."""
    replicas = "1 replica accepts" if refusing_logs == 1 else f"{refusing_logs} replicas accept"
    return (
        f"{replicas} no writes, as the broker can open no more files: other in-sync replicas lead, where there are any"
    )
