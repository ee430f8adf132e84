"""Directories of a broker that accept no writes: DescribeLogDirs returns KAFKA_STORAGE_ERROR for them."""

from typing import Final

from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

_SECONDS: Final = 3.0

DIRECTORY_ADVICE: Final = "free space on its volume or enlarge it, or see why it fails: the broker's output says more"


async def failed_directories(connection: Connection) -> tuple[str, ...]:
    """Return the directories of the broker on the connection that accept no writes; empty if it does not say."""
    try:
        response = await connection.send(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse, timeout=_SECONDS)
    except ClientError:
        return ()
    return tuple(each.log_dir for each in response.results if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR)


def about_directory(path: str) -> str:
    """Return what a failed directory means for clients."""
    return f"{path} takes no writes (KAFKA_STORAGE_ERROR), as its disk is full or fails: clients cannot write here"
