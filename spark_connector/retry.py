"""Repeating an operation on the cluster while its errors are retriable."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.clients.retry import Backoff, Retry

T = TypeVar("T")


async def retry_operation(cluster: Cluster, seconds: float, operation: Callable[[], Awaitable[T]]) -> T:
    """Return what ``operation`` returns; repeat it for up to ``seconds`` while it raises retriable errors.

    Errors of connections are retriable too, so this also waits while no broker can be reached.
    """
    retry = Retry(Backoff(rng=cluster.rng), seconds)
    while True:
        try:
            return await operation()
        except ClientError as error:
            if not error.is_retriable or not await retry.pause():
                raise
