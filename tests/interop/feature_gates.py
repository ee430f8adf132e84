"""A proxy script that stops producers in the middle of a transaction until the cluster's features have changed.

A client hears of features when it connects, so a producer that is to hear of the change at once is then cut off: its
frame is lost with the connection, as far as it can tell, and arrives late. One that is not cut goes on unknowing.
"""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from queue import Queue

from oncelog.protocol.api_keys import ApiKey
from tests.frame_proxy.exchange import Request
from tests.frame_proxy.script import FORWARD, Action, Cut, Forward, LateFrame, Wait
from tests.interop.late_frames.history import History, Place, transactional_id_of

PRODUCERS = 3
CUT_AT_PRODUCE, CUT_AT_END, NOT_CUT = range(PRODUCERS)
_FIRST_OF_VERSION_2 = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}


class FeatureGates:
    """``gates`` are the transactions in which every producer is stopped once."""

    def __init__(self, gates: Sequence[int]) -> None:
        self._gates = frozenset(gates)
        self._histories: defaultdict[int, History] = defaultdict(History)
        self._held: list[LateFrame] = []
        self._closed: list[Future[Forward | Cut]] = []
        self._is_given_up = False
        self.stopped: Queue[tuple[Request, Future[Forward | Cut]]] = Queue()
        """Requests that wait, each with what opens its gate."""
        self.protocols: defaultdict[int, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        """By producer and transaction, the versions of the transaction protocol that its requests were of."""

    def requested(self, request: Request) -> Action:
        transactional_id = transactional_id_of(request)
        if transactional_id is None:
            return FORWARD
        producer = int(transactional_id.rpartition("-")[2])
        history = self._histories[producer]
        if request.api is ApiKey.INIT_PRODUCER_ID:
            return FORWARD
        place, is_new = history.enter(request)
        first_of_2 = _FIRST_OF_VERSION_2.get(request.api)
        self.protocols[producer][place.transaction].add(
            2 if first_of_2 is not None and request.version >= first_of_2 else 1
        )
        if self._is_given_up or not is_new or not self._is_gate(producer, place):
            return FORWARD
        gate: Future[Forward | Cut] = Future()
        self._closed.append(gate)
        self.stopped.put((request, gate))
        return Wait(gate)

    def _is_gate(self, producer: int, place: Place) -> bool:
        api = ApiKey.END_TXN if producer == CUT_AT_END else ApiKey.PRODUCE
        return place.transaction in self._gates and place.api is api and place.occurrence == 0

    def open(self, request: Request, gate: "Future[Forward | Cut]") -> None:
        """Let a stopped producer go on."""
        transactional_id = transactional_id_of(request)
        assert transactional_id is not None
        if transactional_id.endswith(f"-{NOT_CUT}"):
            gate.set_result(FORWARD)
            return
        self._held.append(LateFrame(request.frame, transactional_id, request.connection))
        gate.set_result(Cut())

    def give_up(self) -> None:
        """Stop nobody any more, so that clients end although the test has failed."""
        self._is_given_up = True
        for gate in self._closed:
            if not gate.done():
                gate.set_result(FORWARD)

    def responded(self, request: Request, response: memoryview) -> Sequence[LateFrame]:
        return ()

    def remaining(self) -> Sequence[LateFrame]:
        return self._held

    def delivered(self, late: LateFrame, response: memoryview | None) -> None:
        pass
