"""EndTxn (API key 26): commit or abort a producer's transaction.

NONE means that the decision is durable and, unless a partition keeps the coordinator waiting, that every partition has
its marker. A retry after a lost response gets NONE again, if it requests the same end.

Versions: 2 is the first whose clients know PRODUCER_FENCED; older clients get INVALID_PRODUCER_EPOCH. 3 is
flexible. 4 may get TRANSACTION_ABORTABLE. 5 belongs to the second transaction protocol, whatever level of
``transaction.version`` is finalised: the end gives the producer a new epoch or producer id, which the response carries.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, Shaped, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.transaction.coordinator import EndTxnResult
from oncelog.coordinator.transaction.state import EPOCH_BUMP_VERSION, ProducerIdAndEpoch
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_WITH_PRODUCER_FENCED: Final = 2
_FIRST_WITH_EPOCH_BUMP: Final = 5


@handles(ApiKey.END_TXN, versions="0-5")
def handle_end_txn(broker: Broker, context: RequestContext, request: EndTxnRequest) -> Outcome:
    if not broker.authorizer.authorize(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    response = broker.transaction_coordinator.end_txn(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        commit=request.committed,
        client_version=EPOCH_BUMP_VERSION if context.api_version >= _FIRST_WITH_EPOCH_BUMP else 0,
        connection=context.connection if context.api_version < _FIRST_WITH_EPOCH_BUMP else None,
    )
    return Shaped(response, lambda result: _response(result, context.api_version))


def _response(result: EndTxnResult, version: int) -> EndTxnResponse:
    error, producer = result
    if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error, producer_id=producer.id, producer_epoch=producer.epoch)
