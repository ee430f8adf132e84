"""Several attempts at the same result, each started when those before it have failed or are slow.

It is how a client uses a cluster of which one broker does not respond: no attempt waits for another one to end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.errors import ClientClosed, ClientError

T = TypeVar("T")
_CLOSED: Final = "this client is closed"


class AllAttemptsFailed(ClientError):
    """No attempt succeeded; ``errors`` has the error of each, in the order in which they were started."""

    def __init__(self, errors: Sequence[ClientError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


async def first_success(
    tasks: BackgroundTasks,
    attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]],
    stagger_seconds: float,
    name: str,
    *,
    ends: Callable[[ClientError], bool],
) -> T:
    """Return the result of the first attempt that succeeds; the others are cancelled.

    An attempt is started when the one before it has failed or has taken ``stagger_seconds``. Raises an error at once
    for which ``ends`` is true, ``ClientClosed`` among them, and ``AllAttemptsFailed`` when every attempt has failed.
    """
    to_start = iter(attempts)
    started: list[asyncio.Task[T]] = []
    try:
        while True:
            attempt = next(to_start, None)
            if tasks.is_stopping:
                raise ClientClosed(_CLOSED)
            if attempt is not None:
                started.append(tasks.spawn(attempt(), name, log_failure=False))
            running = [task for task in started if not task.done()]
            if running:
                patience = None if attempt is None else stagger_seconds
                await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            errors = []
            for task in (task for task in started if task.done()):
                error = _error(task)
                if error is None:
                    return task.result()
                if isinstance(error, ClientClosed) or ends(error):
                    raise error
                errors.append(error)
            if attempt is None and len(errors) == len(started):
                raise AllAttemptsFailed(errors)
    finally:
        for task in started:
            task.cancel()


def _error(task: "asyncio.Task[Any]") -> ClientError | None:
    """Return why a task failed. Raises what is not a ``ClientError``."""
    if task.cancelled():  # By its owner: the caller itself was not cancelled.
        return ClientClosed(_CLOSED)
    error = task.exception()
    if error is not None and not isinstance(error, ClientError):
        raise error
    return error
