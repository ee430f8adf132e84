"""Which directories of a broker take no writes, as a client can find out: DescribeLogDirs says KAFKA_STORAGE_ERROR."""

from typing import Final

from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

_SECONDS: Final = 3.0

DIRECTORY_ADVICE: Final = "free space on its volume or enlarge it, or see why it fails: the broker's output says more"


async def failed_directories(connection: Connection) -> tuple[str, ...]:
    """The directories of the broker on the connection that take no writes; empty, too, if it does not say."""
    try:
        response = await connection.send(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse, timeout=_SECONDS)
    except ClientError:
        return ()
    return tuple(each.log_dir for each in response.results if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR)


def about_directory(path: str) -> str:
    """What it means for clients."""
    return f"{path} takes no writes (KAFKA_STORAGE_ERROR), as its disk is full or fails: clients cannot write here"
