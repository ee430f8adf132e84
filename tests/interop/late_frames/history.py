"""Where a request stands in what its transactional id has sent. Pure."""

from collections import defaultdict
from typing import NamedTuple

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.frame_proxy.exchange import Request

NEWEST_ADD_PARTITIONS_OF_CLIENTS = 3


class Place(NamedTuple):
    """A transaction of one producer, an API, and how many different requests of that API came before in it.

    A client that sends a request again is at the same place.
    """

    transaction: int
    api: ApiKey
    occurrence: int


class History:
    """What one transactional id has sent so far."""

    def __init__(self) -> None:
        self._transaction = 0
        self._is_ended = False
        self._bodies: defaultdict[ApiKey, list[bytes]] = defaultdict(list)

    def enter(self, request: Request) -> tuple[Place, bool]:
        """The request's place, and whether it is sent for the first time."""
        if self._is_ended and request.api is not ApiKey.END_TXN:
            self._transaction += 1
            self._bodies.clear()
        self._is_ended = request.api is ApiKey.END_TXN
        bodies = self._bodies[request.api]
        is_new = request.body not in bodies
        if is_new:
            bodies.append(request.body)
        return Place(self._transaction, request.api, bodies.index(request.body)), is_new

    def begin_anew(self) -> None:
        """The producer initialises itself: what follows is another transaction."""
        self._is_ended = True


def transactional_id_of(request: Request) -> str | None:
    """Of the requests that belong to a transaction's history."""
    match request.api:
        case ApiKey.PRODUCE:
            return request.message(ProduceRequest).transactional_id
        case ApiKey.END_TXN:
            return request.message(EndTxnRequest).transactional_id
        case ApiKey.ADD_PARTITIONS_TO_TXN if request.version <= NEWEST_ADD_PARTITIONS_OF_CLIENTS:
            return request.message(AddPartitionsToTxnRequest).v3_and_below_transactional_id
        case ApiKey.ADD_OFFSETS_TO_TXN:
            return request.message(AddOffsetsToTxnRequest).transactional_id
        case ApiKey.TXN_OFFSET_COMMIT:
            return request.message(TxnOffsetCommitRequest).transactional_id
        case ApiKey.INIT_PRODUCER_ID:
            return request.message(InitProducerIdRequest).transactional_id
        case _:
            return None
