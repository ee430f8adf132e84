"""A proxy on a thread of its own, for tests whose clients block or are processes."""

import asyncio
import threading
from types import TracebackType
from typing import Self

from tests.frame_proxy.proxy import FrameProxy
from tests.frame_proxy.script import ForwardEverything, Script
from tests.frame_proxy.wire_record import WireRecord

_SECONDS = 120.0


class ProxyThread:
    """A context manager. A failure of the proxy is raised at its end.

    ``address`` inside it is ``host:port``, or several of them with commas, as of the broker or brokers behind it.
    """

    def __init__(self, broker_address: str, script: Script | None = None) -> None:
        ports = [int(each.rpartition(":")[2]) for each in broker_address.split(",")]
        self._proxy = FrameProxy(ports, script or ForwardEverything())
        self._thread = threading.Thread(target=self._run, name="frame proxy")
        self._decided = threading.Event()
        self._failure: BaseException | None = None

    @property
    def record(self) -> WireRecord:
        return self._proxy.record

    def deliver_remaining(self) -> None:
        """Let what is still late arrive; the clients are gone."""
        asyncio.run_coroutine_threadsafe(self._proxy.deliver_remaining(), self._loop).result(_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._decided.set()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            await self._proxy.start(tasks)
            self.address = ",".join(f"{host}:{port}" for host, port in self._proxy.addresses)
            self._decided.set()
            await self._stopped.wait()
            self._proxy.stop()
            # Clients that are still connected are not waited for.
            raise asyncio.CancelledError

    def __enter__(self) -> Self:
        self._thread.start()
        self._decided.wait(_SECONDS)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(_SECONDS)
        if self._failure is not None and not isinstance(self._failure, asyncio.CancelledError):
            raise self._failure
