"""How many files a request crosses in a broker: ``python -m tests.house.request_path [ROOT]``.

A whole broker runs in this process on its own disk and sockets, with one connection from a thread beside it. While a
request is on its way a profiler (``sys.setprofile``) sees every call of a Python function in the loop's thread, from
the return of the ``recv`` that brought the request to the last ``send`` of its response. Of that are counted:

* files: the product's files with a function that is called. Generated codecs have no file, the standard library is
  not ours; neither counts.
* moves: how often the next function that is called lies in another file than the one called before it, as a reader
  meets them in order.
* depth: the most functions of the product on the stack at once.

Each request is sent in several transactions and the least is taken, because timers of the broker may run in between.
One broker answers EndTxn when the transaction is Complete: its markers are local; what DescribeTransactions says right
after it is checked. What is needed of the product is found by the names of its functions and classes, wherever they
are, so that a former commit can be measured in its own tree.
"""

import asyncio
import importlib
import json
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, TypeAlias

from tests.house.sources import FACADE, PACKAGES, REPOSITORY, Source, defining_module, read_product

TRANSACTIONS: Final = 5
_RECEIVING: Final = frozenset({"recv", "recv_into"})
_WAKING: Final = "_read_from_self"
"""The event loop's own ``recv``, of what other threads wake it with."""
_SENDING: Final = frozenset({"send", "sendmsg", "writelines"})
_TRANSACTIONAL_ID: Final = "measured"
_TOPIC: Final = "measured"
_PATIENCE_SECONDS: Final = 30

Event: TypeAlias = tuple[str, str]
"""("call" or "return", file of the product or "") or ("received" or "sent", "")."""


class Crossing(NamedTuple):
    """What one request crosses."""

    moves: int
    files: Sequence[str]
    depth: int


def crossing(events: Sequence[Event]) -> Crossing:
    """Return what is called between the first call after bytes were received and the last bytes sent."""
    calls: list[str] = []
    stack: list[str] = []
    depth = 0
    for kind, file in _between_receipt_and_response(events):
        if kind == "call":
            stack.append(file)
            if file:
                calls.append(file)
                depth = max(depth, sum(map(bool, stack)))
        elif kind == "return" and stack:
            stack.pop()
    moves = sum(a != b for a, b in pairwise(calls))
    return Crossing(moves, sorted(set(calls)), depth)


def _between_receipt_and_response(events: Sequence[Event]) -> Sequence[Event]:
    sent = max(place for place, (kind, _) in enumerate(events) if kind == "sent")
    received = False
    for place, (kind, file) in enumerate(events[:sent]):
        received = received or kind == "received"
        if received and kind == "call" and file:
            return events[place:sent]
    return ()


class Recorder:
    """Sees the calls of the loop's thread while it is switched on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, root: Path) -> None:
        self._loop = loop
        self._root = root
        self._events: list[Event] = []
        self._file = cache(self._file_of)

    def start(self) -> None:
        """Begin to record; called from another thread."""
        self._events = []
        self._switch(True)

    def stop(self) -> list[Event]:
        """Return what was recorded; called from another thread."""
        self._switch(False)
        return self._events

    def _switch(self, on: bool) -> None:
        done = threading.Event()

        def switch() -> None:
            sys.setprofile(self._see if on else None)
            done.set()

        self._loop.call_soon_threadsafe(switch)
        assert done.wait(_PATIENCE_SECONDS)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "return"):
            self._events.append((event, self._file(frame.f_code)))
        elif event == "c_return" and argument.__name__ in _RECEIVING and frame.f_code.co_name != _WAKING:
            self._events.append(("received", ""))
        elif event == "c_call" and argument.__name__ in _SENDING:
            self._events.append(("sent", ""))

    def _file_of(self, code: CodeType) -> str:
        file = Path(code.co_filename).resolve()  # A package may be imported through a link.
        if not file.is_relative_to(self._root):
            return ""
        path = file.relative_to(self._root)
        return str(path) if path.parts[0] in (*PACKAGES, FACADE) else ""


class Product:
    """The functions and classes of a tree, by name."""

    def __init__(self, root: Path, sources: Iterable[Source]) -> None:
        self._sources = list(sources)
        self._prefix = f"{FACADE}." if (root / FACADE / "__init__.py").is_file() else ""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._prefix + defining_module(self._sources, name)), name)


class Client:
    """One blocking connection, and a producer's transactions on it."""

    def __init__(self, product: Product, port: int, recorder: Recorder, *, version_2: bool) -> None:
        self._product = product
        self._recorder = recorder
        self._version_2 = version_2
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        self._producer: Any = None
        self._sequence = 0
        self.crossings: dict[str, list[Crossing]] = {}

    def call(self, version: int, name: str, **fields: Any) -> Any:
        """Send a request and return its response."""
        request = getattr(self._product, f"{name}Request")(**fields)
        self._socket.sendall(b"".join(self._product.encode_request(1, "measure", request, version)))
        (size,) = struct.unpack(">i", self._receive(4))
        response = getattr(self._product, f"{name}Response")
        return self._product.parse_response(response, version, memoryview(self._receive(size)))[1]

    def run(self) -> None:
        """Play the transactions, and close."""
        topic = self._product.CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=1)
        self.call(5, "CreateTopics", topics=[topic], timeout_ms=5_000)
        self._settle(3, "FindCoordinator", key=_TRANSACTIONAL_ID, key_type=1)
        self._producer = self._settle(
            4, "InitProducerId", transactional_id=_TRANSACTIONAL_ID, transaction_timeout_ms=60_000
        )
        for _ in range(TRANSACTIONS):
            self._transaction()
        self._socket.close()

    def _transaction(self) -> None:
        version = "version 2" if self._version_2 else "version 1"
        if not self._version_2:
            self._add_partition()
        self._produce(f"Produce, first of its transaction, {version}")
        self._produce(f"Produce, a later one, {version}")
        ended = self._measured(
            f"EndTxn to Complete, {version}",
            5 if self._version_2 else 3,
            "EndTxn",
            transactional_id=_TRANSACTIONAL_ID,
            committed=True,
            **self._identity,
        )
        assert ended.error_code == 0, ended
        (described,) = self.call(0, "DescribeTransactions", transactional_ids=[_TRANSACTIONAL_ID]).transaction_states
        assert described.transaction_state == "CompleteCommit", described
        if self._version_2:
            self._producer, self._sequence = ended, 0

    def _add_partition(self) -> None:
        topic = self._product.AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])
        added = self.call(
            3,
            "AddPartitionsToTxn",
            v3_and_below_transactional_id=_TRANSACTIONAL_ID,
            v3_and_below_topics=[topic],
            **{f"v3_and_below_{name}": value for name, value in self._identity.items()},
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, added

    def _produce(self, name: str) -> None:
        record = self._product.NewRecord(timestamp=1_700_000_000_000, key=None, value=bytes(100))
        batch = self._product.build_batch(
            [record], base_sequence=self._sequence, is_transactional=True, **self._identity
        )
        self._sequence += 1
        partition = self._product.PartitionProduceData(index=0, records=batch)
        data = self._product.TopicProduceData(name=_TOPIC, partition_data=[partition])
        produced = self._measured(
            name,
            12 if self._version_2 else 9,
            "Produce",
            transactional_id=_TRANSACTIONAL_ID,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data],
        )
        assert produced.responses[0].partition_responses[0].error_code == 0, produced

    def _measured(self, row: str, version: int, name: str, **fields: Any) -> Any:
        self._recorder.start()
        try:
            response = self.call(version, name, **fields)
        finally:
            events = self._recorder.stop()
        self.crossings.setdefault(row, []).append(crossing(events))
        return response

    def _settle(self, version: int, name: str, **fields: Any) -> Any:
        """Repeat a request until the coordinator is there and has loaded."""
        until = time.monotonic() + _PATIENCE_SECONDS  # noqa: TID251
        while True:
            response = self.call(version, name, **fields)
            if response.error_code == 0:
                return response
            assert time.monotonic() < until, response  # noqa: TID251

    @property
    def _identity(self) -> dict[str, int]:
        return {"producer_id": self._producer.producer_id, "producer_epoch": self._producer.producer_epoch}

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            assert part, "the broker closed the connection"
            received += part
        return received


async def measure(root: Path) -> dict[str, Crossing]:
    """Run a broker of the tree at ``root`` and return what each request crosses."""
    product = Product(root, read_product(root))
    least: dict[str, Crossing] = {}
    for version_2 in (False, True):
        with tempfile.TemporaryDirectory() as data_dir:
            settings = [f"log.dirs={data_dir}", "listeners=PLAINTEXT://127.0.0.1:0"]
            broker = await product.start_broker(
                product.load_config(overrides=settings).config,
                disk=product.LocalDisk(),
                wall_clock=lambda: 1_700_000_000_000,
                rng=random.Random(1),
            )
            try:
                (listener,) = broker.listeners.bound
                recorder = Recorder(asyncio.get_running_loop(), root)
                client = Client(product, listener.port, recorder, version_2=version_2)
                await asyncio.to_thread(client.run)
            finally:
                await broker.stop()
        least |= {row: min(crossings) for row, crossings in client.crossings.items()}
    return least


def main() -> None:
    """Print the crossings of the tree at the root that is given, or of this one, as JSON."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else REPOSITORY
    sys.path.insert(0, str(root))
    print(json.dumps({row: each._asdict() for row, each in asyncio.run(measure(root)).items()}))


if __name__ == "__main__":
    main()
